# The target `docs`: the reference of the public headers in build/docs/api of the source tree, the
# same for every preset.
find_program(LOCKSTEP_DOXYGEN doxygen)
mark_as_advanced(LOCKSTEP_DOXYGEN)
if(LOCKSTEP_DOXYGEN)
    add_custom_target(docs
        COMMAND ${CMAKE_COMMAND} -E make_directory build/docs
        COMMAND ${CMAKE_COMMAND} -E env LOCKSTEP_VERSION=${PROJECT_VERSION}
            ${LOCKSTEP_DOXYGEN} docs/Doxyfile
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
        COMMENT "Writing build/docs/api/index.html"
        VERBATIM)
endif()
