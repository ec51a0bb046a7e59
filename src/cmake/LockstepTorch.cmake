# LibTorch as one imported target, lockstep::torch. Not find_package(Torch): with a CUDA toolkit beside
# it that probes compilers and links what a CPU node does not have. Installed beside
# LockstepConfig.cmake as well: a consumer finds its LibTorch again with the same rules.
include_guard(GLOBAL)
# The one that scripts/setup gets. An installed Lockstep sets it to the one that it was built with.
if(NOT LOCKSTEP_TORCH_VERSION)
    set(LOCKSTEP_TORCH_VERSION 2.11.0)
    set(LOCKSTEP_TORCH_BEFORE 2.16) # newer ones than 2.15 are untried
endif()

# Folders that may hold a LibTorch, in order of preference: the one named, a site's own, the cache.
function(lockstep_torch_candidates result)
    foreach(named "${LOCKSTEP_TORCH}" "$ENV{LOCKSTEP_TORCH}")
        if(named)
            set(${result} ${named} PARENT_SCOPE)
            return()
        endif()
    endforeach()
    set(candidates)
    string(REPLACE ":" ";" prefixes "$ENV{CMAKE_PREFIX_PATH}")
    foreach(prefix IN LISTS CMAKE_PREFIX_PATH prefixes)
        list(APPEND candidates ${prefix} ${prefix}/libtorch)
    endforeach()
    set(cache $ENV{LOCKSTEP_CACHE})
    if(NOT cache AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
        set(cache $ENV{XDG_CACHE_HOME}/lockstep)
    elseif(NOT cache)
        set(cache $ENV{HOME}/.cache/lockstep)
    endif()
    set(${result} ${candidates} ${cache}/libtorch-${LOCKSTEP_TORCH_VERSION} PARENT_SCOPE)
endfunction()

function(lockstep_find_torch result)
    lockstep_torch_candidates(candidates)
    foreach(candidate IN LISTS candidates)
        if(EXISTS ${candidate}/lib/libtorch_cpu.so)
            file(REAL_PATH ${candidate} root)
            set(${result} ${root} PARENT_SCOPE)
            return()
        endif()
    endforeach()
    list(JOIN candidates "\n      " tried)
    message(FATAL_ERROR "No LibTorch found.\n"
        "  tried (lib/libtorch_cpu.so in):\n      ${tried}\n"
        "  fix: run scripts/setup, or set LOCKSTEP_TORCH to a folder with include/ and lib/ of LibTorch ${LOCKSTEP_TORCH_VERSION}.")
endfunction()

function(lockstep_check_torch_version root)
    set(header ${root}/include/torch/headeronly/version.h)
    set(version "older than 2.10 (no torch/headeronly/version.h)")
    if(EXISTS ${header})
        file(STRINGS ${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
        string(REGEX REPLACE "[^0-9;]+" "" numbers "${lines}")
        list(JOIN numbers "." version)
    endif()
    set(LOCKSTEP_TORCH_FOUND "${version}" PARENT_SCOPE)
    if(version STREQUAL LOCKSTEP_TORCH_VERSION)
        return()
    endif()
    if(LOCKSTEP_TORCH_BEFORE AND version MATCHES "^[0-9.]+$" AND version VERSION_GREATER LOCKSTEP_TORCH_VERSION
            AND version VERSION_LESS LOCKSTEP_TORCH_BEFORE)
        message(STATUS "LibTorch is ${version}: its runs have other bits than those of ${LOCKSTEP_TORCH_VERSION}, and stay with it")
        return()
    endif()
    set(wanted ${LOCKSTEP_TORCH_VERSION})
    if(LOCKSTEP_TORCH_BEFORE)
        string(APPEND wanted ", or a later one before ${LOCKSTEP_TORCH_BEFORE}")
    endif()
    message(FATAL_ERROR "The LibTorch in ${root} is version ${version}.\n"
        "  why: Lockstep is built with ${wanted}; another one does not compile or link\n"
        "  fix: run scripts/setup, or set LOCKSTEP_TORCH to a LibTorch ${wanted}.")
endfunction()

function(lockstep_check_torch_abi root)
    file(STRINGS ${root}/lib/libc10.so abi REGEX "__cxx11" LIMIT_COUNT 1)
    if(NOT abi)
        message(FATAL_ERROR "The LibTorch in ${root} uses the old C++ ABI (no __cxx11 symbols in libc10.so).\n"
            "  fix: use the PyPI wheel (scripts/setup) or the 'cxx11 ABI' LibTorch zip.")
    endif()
endfunction()

# A CUDA build of libtorch_cpu.so needs libcudart and libcupti even where there is no GPU.
function(lockstep_check_torch_loads root)
    execute_process(COMMAND ldd ${root}/lib/libtorch_cpu.so
        OUTPUT_VARIABLE needed ERROR_QUIET RESULT_VARIABLE failed)
    string(REGEX MATCHALL "[^ \t\n]+ => not found" missing "${needed}")
    if(missing AND NOT failed)
        list(JOIN missing "\n      " missing)
        message(FATAL_ERROR "The LibTorch in ${root} cannot be loaded:\n      ${missing}\n"
            "  why: these belong to the CUDA toolkit, which is not in the loader's path\n"
            "  fix: run scripts/setup, which puts them beside libtorch_cpu.so, or set LD_LIBRARY_PATH.")
    endif()
endfunction()

lockstep_find_torch(LOCKSTEP_TORCH_ROOT)
lockstep_check_torch_version(${LOCKSTEP_TORCH_ROOT})
lockstep_check_torch_abi(${LOCKSTEP_TORCH_ROOT})
lockstep_check_torch_loads(${LOCKSTEP_TORCH_ROOT})

add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
# Behind the system's folders: LibTorch carries a copy of fmt's headers whose functions it does not export.
target_compile_options(lockstep::torch INTERFACE
    "SHELL:-idirafter ${LOCKSTEP_TORCH_ROOT}/include"
    "SHELL:-idirafter ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include")
target_link_directories(lockstep::torch INTERFACE ${LOCKSTEP_TORCH_ROOT}/lib)
target_link_libraries(lockstep::torch INTERFACE c10 torch_cpu)
target_link_options(lockstep::torch INTERFACE
    LINKER:-rpath,${LOCKSTEP_TORCH_ROOT}/lib LINKER:--allow-shlib-undefined LINKER:--disable-new-dtags)
