# Unity builds: up to 16 files of a module or test program are compiled as one, since most of a file's time
# goes into the headers that its neighbours read, too. So names of anonymous namespaces are unique in both.
# `tidy` is built without, which proves that each file stands alone.
option(LOCKSTEP_UNITY "Compile up to 16 files of a module as one" ON)
set(LOCKSTEP_UNITY_FILES 16)

# lockstep_unite(target unit file...): these files of the calling folder's `target` as one, and with no
# others. A program takes a unit whole out of a library: files that need Torch, MPI or HDF5 are not in one
# with files that do without. Files with flags of their own are left out by CMake.
function(lockstep_unite target unit)
    if(LOCKSTEP_UNITY)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
        set_property(SOURCE ${ARGN} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP ${unit})
    endif()
endfunction()

# lockstep_unite_folders(target file...): units of up to 16 files. Small folders share one; a larger one is
# cut into units of about the same size.
function(lockstep_unite_folders target)
    set(folders)
    foreach(file IN LISTS ARGN)
        cmake_path(ABSOLUTE_PATH file NORMALIZE)
        cmake_path(GET file PARENT_PATH folder)
        cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
        string(REPLACE "/" "_" folder ${folder})
        list(APPEND folders ${folder})
        list(APPEND files_${folder} ${file})
    endforeach()
    list(REMOVE_DUPLICATES folders)
    set(room 0)
    foreach(folder IN LISTS folders)
        list(LENGTH files_${folder} count)
        if(count LESS_EQUAL room)
            lockstep_unite(${target} ${shared} ${files_${folder}})
            math(EXPR room "${room} - ${count}")
            continue()
        endif()
        math(EXPR units "(${count} + ${LOCKSTEP_UNITY_FILES} - 1) / ${LOCKSTEP_UNITY_FILES}")
        math(EXPR size "(${count} + ${units} - 1) / ${units}")
        foreach(unit RANGE 1 ${units})
            math(EXPR first "(${unit} - 1) * ${size}")
            list(SUBLIST files_${folder} ${first} ${size} files)
            list(GET files 0 named)
            cmake_path(GET named STEM named)
            set(shared ${folder}_${named})
            lockstep_unite(${target} ${shared} ${files})
        endforeach()
        list(LENGTH files count)
        math(EXPR room "${LOCKSTEP_UNITY_FILES} - ${count}")
    endforeach()
endfunction()

# LibTorch's headers are most of what a unit costs that reads them. The tests have enough such units for a
# precompiled header; a build without them has not. All of its users have the same options: -fPIC, too.
if(LOCKSTEP_WITH_TORCH AND LOCKSTEP_TESTS AND LOCKSTEP_UNITY AND NOT LOCKSTEP_TIDY
        AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_GENERATOR MATCHES Ninja)
    set(LOCKSTEP_TORCH_HEADERS ${PROJECT_BINARY_DIR}/CMakeFiles/lockstep_torch_headers.dir/cmake_pch.hxx)
endif()

# lockstep_add_headers(target HEADERS ... LINK ... [PIC]): precompiled headers. GCC wants a unit to have the options
# that they were precompiled with, so there is one such target for each set of options.
function(lockstep_add_headers target)
    cmake_parse_arguments(arg "PIC" "" "HEADERS;LINK" ${ARGN})
    file(WRITE ${PROJECT_BINARY_DIR}/${target}.cpp "")
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${target}.cpp)
    target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
    target_compile_features(${target} PRIVATE cxx_std_20)
    target_link_libraries(${target} PRIVATE ${arg_LINK} lockstep_warnings)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ${arg_PIC})
endfunction()

# What nearly every unit reads.
set(lockstep_usual_headers <fmt/format.h> <algorithm> <array> <atomic> <chrono> <cmath> <filesystem> <functional> <map>
    <memory> <mutex> <numeric> <optional> <set> <span> <string> <thread> <vector>)

# lockstep_precompile_torch(target unit|file.cpp...): these units of the calling folder's `target`, which
# lockstep_unite() names, and these files read LibTorch's headers precompiled.
function(lockstep_precompile_torch target)
    if(NOT LOCKSTEP_TORCH_HEADERS)
        return()
    endif()
    set_target_properties(${target} PROPERTIES LOCKSTEP_HAS_TORCH_HEADERS ON)
    foreach(source IN LISTS ARGN)
        if(NOT source MATCHES "\\.cpp$")
            set(source ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/Unity/unity_${source}_cxx.cxx)
        endif()
        set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
        set_property(SOURCE ${source} TARGET_DIRECTORY ${target} APPEND PROPERTY
            COMPILE_OPTIONS -fPIC -Winvalid-pch -fpch-preprocess -include ${LOCKSTEP_TORCH_HEADERS})
        set_property(SOURCE ${source} TARGET_DIRECTORY ${target} APPEND PROPERTY
            OBJECT_DEPENDS ${LOCKSTEP_TORCH_HEADERS}.gch)
    endforeach()
endfunction()

# lockstep_precompile(target headers): the units of `target` read what lockstep_add_headers() precompiled.
function(lockstep_precompile target headers)
    if(LOCKSTEP_UNITY AND NOT LOCKSTEP_TIDY)
        set_target_properties(${target} PROPERTIES PRECOMPILE_HEADERS_REUSE_FROM ${headers})
    endif()
endfunction()

# lockstep_own_flags(module SOURCES ... FLAGS ...): more compiler options for single files of a module. They
# are the files that are run most, so sanitized builds optimise them, too.
function(lockstep_own_flags module)
    cmake_parse_arguments(arg "" "" "SOURCES;FLAGS" ${ARGN})
    set_property(SOURCE ${arg_SOURCES} TARGET_DIRECTORY lockstep_${module} APPEND
        PROPERTY COMPILE_OPTIONS ${arg_FLAGS} $<$<BOOL:${LOCKSTEP_SANITIZE}>:-O1>)
    set_property(SOURCE ${arg_SOURCES} TARGET_DIRECTORY lockstep_${module} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# lockstep_modest(target): -O1 for what is not run often enough to gain from more. -O0 in sanitized builds, where
# checks make optimising take twice as long.
function(lockstep_modest target)
    if(LOCKSTEP_SANITIZE)
        set(option -O0)
    else()
        set(option $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
    endif()
    target_compile_options(${target} PRIVATE ${option})
    get_target_property(headers ${target} PRECOMPILE_HEADERS_REUSE_FROM)
    if(headers STREQUAL "lockstep_headers")
        lockstep_precompile(${target} lockstep_modest_headers)
    endif()
endfunction()
