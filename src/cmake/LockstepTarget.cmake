# lockstep_add_module(name SOURCES ... HEADERS ... LINK ... LINK_PRIVATE ...): one library lockstep::name.

# What a program does not call is left out of it: it also runs where few addresses are left.
if(NOT LOCKSTEP_SANITIZE)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffunction-sections>)
    add_link_options($<$<LINK_LANGUAGE:CXX>:LINKER:--gc-sections>)
endif()

add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
    # False alarms of GCC 12 in its own headers at -O3 (GCC bugs 105651, 105562).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized>
    $<$<BOOL:${LOCKSTEP_WERROR}>:-Werror>)

# Sums must be what the source says on every instruction set: no contraction into fused operations.
add_library(lockstep_numerics INTERFACE)
target_compile_options(lockstep_numerics INTERFACE -ffp-contract=off)

add_library(lockstep_sanitize INTERFACE)
if(LOCKSTEP_SANITIZE)
    list(JOIN LOCKSTEP_SANITIZE "," lockstep_sanitizers)
    target_compile_options(lockstep_sanitize INTERFACE
        -fsanitize=${lockstep_sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(lockstep_sanitize INTERFACE -fsanitize=${lockstep_sanitizers})
endif()

# For modules' units: as all of them are compiled, and as lockstep_modest() has them.
foreach(headers lockstep_headers lockstep_modest_headers)
    lockstep_add_headers(${headers} PIC HEADERS <fmt/ranges.h> ${lockstep_usual_headers}
        LINK fmt::fmt lockstep_numerics lockstep_sanitize)
endforeach()
lockstep_modest(lockstep_modest_headers)

function(lockstep_add_module name)
    cmake_parse_arguments(arg "" "" "SOURCES;HEADERS;LINK;LINK_PRIVATE" ${ARGN})
    set(target lockstep_${name})
    add_library(${target} STATIC ${arg_SOURCES})
    add_library(lockstep::${name} ALIAS ${target})
    lockstep_unite_folders(${target} ${arg_SOURCES})
    if(NOT "lockstep::torch" IN_LIST arg_LINK AND NOT "lockstep::commands" IN_LIST arg_LINK)
        lockstep_precompile(${target} lockstep_headers)
    endif()
    list(TRANSFORM arg_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/lockstep/${name}/)
    target_sources(${target} PUBLIC FILE_SET HEADERS
        BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${arg_HEADERS})
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_link_libraries(${target}
        PUBLIC ${arg_LINK}
        PRIVATE ${arg_LINK_PRIVATE} $<BUILD_INTERFACE:lockstep_warnings>
                $<BUILD_INTERFACE:lockstep_numerics> $<BUILD_INTERFACE:lockstep_sanitize>)
    set_target_properties(${target} PROPERTIES
        EXPORT_NAME ${name} CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
        VERIFY_INTERFACE_HEADER_SETS ON)
    install(TARGETS ${target} EXPORT LockstepTargets FILE_SET HEADERS)
endfunction()

# lockstep_extend_module(name SOURCES ... HEADERS ...): more of module `name`, from a folder below it.
function(lockstep_extend_module name)
    cmake_parse_arguments(arg "" "" "SOURCES;HEADERS" ${ARGN})
    list(TRANSFORM arg_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/lockstep/${name}/)
    list(TRANSFORM arg_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    target_sources(lockstep_${name} PRIVATE ${arg_SOURCES})
    lockstep_unite_folders(lockstep_${name} ${arg_SOURCES})
    target_sources(lockstep_${name} PUBLIC FILE_SET HEADERS FILES ${arg_HEADERS})
endfunction()
