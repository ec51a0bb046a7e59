# Installs the program, the libraries, their headers and a package for find_package(Lockstep).
include(CMakePackageConfigHelpers)

# The programs are always at bin/ of the build folder. An installed one finds libraries beside itself
# first, which makes the folder of scripts/bundle one that can be moved.
if(TARGET lockstep)
    set_target_properties(lockstep lockstep-train PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
        INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../libtorch/lib")
    install(TARGETS lockstep lockstep-train RUNTIME COMPONENT program)
endif()

# Looks at HDF5 files that nobody vouches for; the programs and the libraries' users start it.
install(TARGETS lockstep-h5probe RUNTIME COMPONENT program)

# Batch scripts: LOCKSTEP_ROOT is share/lockstep then.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/slurm DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep
    USE_SOURCE_PERMISSIONS COMPONENT program)

if(TARGET lockstep_cuda)
    install(TARGETS lockstep_cuda LIBRARY DESTINATION lib COMPONENT program)
    install(TARGETS lockstep-gpu-selftest RUNTIME COMPONENT program)
endif()

set(lockstep_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
set(lockstep_package_files ${PROJECT_SOURCE_DIR}/src/cmake/LockstepDependencies.cmake)
if(LOCKSTEP_WITH_TORCH)
    list(APPEND lockstep_package_files ${PROJECT_SOURCE_DIR}/src/cmake/LockstepTorch.cmake)
endif()

configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/src/cmake/LockstepConfig.cmake.in
    ${PROJECT_BINARY_DIR}/LockstepConfig.cmake
    INSTALL_DESTINATION ${lockstep_package_dir})
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(EXPORT LockstepTargets NAMESPACE lockstep:: DESTINATION ${lockstep_package_dir})
install(FILES
    ${lockstep_package_files}
    ${PROJECT_BINARY_DIR}/LockstepConfig.cmake
    ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
    DESTINATION ${lockstep_package_dir})
