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
