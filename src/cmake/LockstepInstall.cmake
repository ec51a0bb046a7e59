# Installs the program, the libraries, their headers and a package for find_package(Lockstep).
include(CMakePackageConfigHelpers)

# The programs are always at bin/ of the build folder. An installed one finds libraries beside itself
# first, which makes the folder of scripts/bundle one that can be moved. The build folder's have the same search
# path. Otherwise CMake would end it with ":", and an empty part means the current folder, which may be anybody's.
foreach(target lockstep lockstep-train lockstep-h5probe lockstep-gpu-selftest lockstep_cuda lockstep_cuda_graph)
    if(TARGET ${target})
        set_target_properties(${target} PROPERTIES
            BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
    endif()
endforeach()
if(TARGET lockstep)
    set_target_properties(lockstep lockstep-train PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
        INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../libtorch/lib")
    install(TARGETS lockstep lockstep-train RUNTIME COMPONENT program)
    # lockstep(1), completions of three shells and the reference: the program makes them from its tables.
    install(CODE "execute_process(COMMAND \"$<TARGET_FILE:lockstep>\" generate-manual
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\"
        COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)
endif()

# Looks at HDF5 files that nobody vouches for; the programs and the libraries' users start it.
install(TARGETS lockstep-h5probe RUNTIME COMPONENT program)

# Batch scripts: LOCKSTEP_ROOT is share/lockstep then.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/slurm DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep
    USE_SOURCE_PERMISSIONS COMPONENT program)

# What 'lockstep export-script' prints, for machines where models are exported.
install(PROGRAMS ${PROJECT_SOURCE_DIR}/src/app/info/lockstep_export.py
    DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep COMPONENT program)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/lockstep COMPONENT program)

# 'module use PREFIX/share/lockstep/modulefiles', of Environment Modules and Lmod.
configure_file(${PROJECT_SOURCE_DIR}/scripts/packaging/modulefile.in
    ${PROJECT_BINARY_DIR}/modulefile @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/modulefile RENAME ${PROJECT_VERSION}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/modulefiles/lockstep)

# Only where they are built: 'cmake --build ... --target lockstep', as in scripts/quickstart, does not.
if(TARGET lockstep_cuda)
    install(TARGETS lockstep_cuda LIBRARY DESTINATION lib COMPONENT program OPTIONAL)
    if(TARGET lockstep_cuda_graph)
        install(TARGETS lockstep_cuda_graph LIBRARY DESTINATION lib COMPONENT program OPTIONAL)
    endif()
    install(TARGETS lockstep-gpu-selftest RUNTIME COMPONENT program OPTIONAL)
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:lockstep-gpu-selftest>\")
            message(STATUS \"The GPU's library and self-test are not built, and left out: cmake --build ${PROJECT_BINARY_DIR}\")
        endif()" COMPONENT program)
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

# 'cpack' in the build folder: one archive of all that is installed.
if(PROJECT_IS_TOP_LEVEL)
    set(CPACK_GENERATOR TGZ)
    set(CPACK_PACKAGE_NAME lockstep)
    set(CPACK_PACKAGE_VENDOR "The Lockstep maintainers")
    set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
    set(CPACK_PACKAGE_FILE_NAME lockstep-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
    set(CPACK_VERBATIM_VARIABLES ON)
    include(CPack)
endif()
