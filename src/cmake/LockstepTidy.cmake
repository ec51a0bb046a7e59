# clang-tidy beside every compilation, with the checks of .clang-tidy. It cannot read the compiler's
# precompiled headers, so there are none in this build.
if(LOCKSTEP_TIDY)
    find_program(LOCKSTEP_CLANG_TIDY NAMES clang-tidy-14 clang-tidy REQUIRED)
    mark_as_advanced(LOCKSTEP_CLANG_TIDY)
    set(CMAKE_CXX_CLANG_TIDY ${LOCKSTEP_CLANG_TIDY} --quiet)
    set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
