# What the modules without Torch stand on. Everything is in Debian 12; scripts/setup installs it.
# Installed beside LockstepConfig.cmake as well, so that a consumer finds the same libraries.
macro(lockstep_needs)
    if(CMAKE_FIND_PACKAGE_NAME STREQUAL "Lockstep")
        find_dependency(${ARGN})
    else()
        find_package(${ARGN} REQUIRED)
    endif()
endmacro()

lockstep_needs(Threads)
lockstep_needs(PkgConfig)
lockstep_needs(fmt)
lockstep_needs(nlohmann_json)
lockstep_needs(tomlplusplus)
set(MPI_CXX_SKIP_MPICXX ON) # the C interface only
lockstep_needs(MPI COMPONENTS CXX)
lockstep_needs(HDF5 COMPONENTS C)
lockstep_needs(Boost COMPONENTS program_options)
lockstep_needs(ZLIB)
pkg_check_modules(xxhash REQUIRED QUIET IMPORTED_TARGET GLOBAL libxxhash)
pkg_check_modules(lz4 REQUIRED QUIET IMPORTED_TARGET GLOBAL liblz4)
pkg_check_modules(zstd REQUIRED QUIET IMPORTED_TARGET GLOBAL libzstd)
pkg_check_modules(libdeflate REQUIRED QUIET IMPORTED_TARGET GLOBAL libdeflate)
