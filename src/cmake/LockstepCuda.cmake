# Whether liblockstep_cuda.so is built: LOCKSTEP_CUDA_FOUND, LOCKSTEP_NCCL_INCLUDE_DIR and
# LOCKSTEP_NCCL_HEADER_VERSION. Nothing else needs CUDA to be built or tested.
set(LOCKSTEP_WITH_CUDA AUTO CACHE STRING
    "Build liblockstep_cuda.so: ON, OFF, or AUTO (where nvcc, CUDA's runtime and nccl.h are found)")
set_property(CACHE LOCKSTEP_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)

set(LOCKSTEP_CUDA_FOUND FALSE)
if(LOCKSTEP_WITH_CUDA)
    find_package(CUDAToolkit QUIET)
    find_path(LOCKSTEP_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME
        PATH_SUFFIXES include)
    mark_as_advanced(LOCKSTEP_NCCL_INCLUDE_DIR)
    if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static AND
            LOCKSTEP_NCCL_INCLUDE_DIR)
        set(LOCKSTEP_CUDA_FOUND TRUE)
    elseif(NOT LOCKSTEP_WITH_CUDA STREQUAL "AUTO")
        message(FATAL_ERROR "LOCKSTEP_WITH_CUDA is ${LOCKSTEP_WITH_CUDA}, but the CUDA toolkit, nvcc or nccl.h is missing.\n"
            "  CUDA toolkit: ${CUDAToolkit_VERSION} ${CUDAToolkit_BIN_DIR}\n"
            "  nvcc:         ${CUDAToolkit_NVCC_EXECUTABLE}\n"
            "  nccl.h in:    ${LOCKSTEP_NCCL_INCLUDE_DIR}\n"
            "  fix: set CUDAToolkit_ROOT and NCCL_HOME, or leave LOCKSTEP_WITH_CUDA at AUTO.")
    endif()
endif()

if(LOCKSTEP_CUDA_FOUND)
    file(STRINGS ${LOCKSTEP_NCCL_INCLUDE_DIR}/nccl.h lines REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]+" "" numbers "${lines}")
    list(JOIN numbers "." LOCKSTEP_NCCL_HEADER_VERSION)
endif()

# lockstep_add_kernels(name SOURCE file INCLUDE dir): kernels for liblockstep_cuda.so. nvcc is called as
# a tool: CMake's CUDA language would be enabled, and tried out, for the sake of few files. The same
# arithmetic as on the CPU: no contraction, IEEE division (nvcc's default). Machine code for A100 and
# H100; others compile the code for sm_75 when it is loaded.
function(lockstep_add_kernels name)
    cmake_parse_arguments(arg "" "SOURCE;INCLUDE" "" ${ARGN})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SOURCE})
    set(host_compiler)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        set(host_compiler -ccbin ${CMAKE_CXX_COMPILER})
    endif()
    add_custom_command(OUTPUT ${object}
        COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} ${host_compiler} -std=c++20 -O3 --fmad=false
            -gencode arch=compute_75,code=compute_75 -gencode arch=compute_80,code=sm_80
            -gencode arch=compute_90,code=sm_90 -Xcompiler=-fPIC,-Wall,-Wextra,-ffp-contract=off
            $<$<BOOL:${LOCKSTEP_WERROR}>:-Werror=all-warnings>
            -I${PROJECT_SOURCE_DIR}/include -I${arg_INCLUDE}
            -MD -MF ${object}.d -c ${source} -o ${object}
        DEPENDS ${source} DEPFILE ${object}.d
        COMMENT "Compiling CUDA kernels: ${name}"
        COMMAND_EXPAND_LISTS VERBATIM)
    add_custom_target(lockstep_${name} DEPENDS ${object})
    add_dependencies(lockstep_cuda lockstep_${name})
    target_link_libraries(lockstep_cuda PRIVATE ${object})
endfunction()
