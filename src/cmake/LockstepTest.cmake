# lockstep_add_test(folder/name SOURCES ... LINK ... [RANKS 1 2 4] [HOSTS a:1,b:1 a:2,b:1] [TIMEOUT s]
# [LABELS ...]): one test program, as few for a folder as numbers of ranks allow; it may look behind its
# module's public headers. RANKS: once with so many ranks on this machine, as name.np2; HOSTS:
# once on such a cluster (tests/support/two_hosts), as name.hosts-2-1.
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)

# Test programs are compiled often and run briefly; what they test keeps all of its optimisation and
# checks. Halves the time to build them. LibTorch's headers gain little, and are precompiled with more.
add_library(lockstep_test_economy INTERFACE)
target_compile_options(lockstep_test_economy INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_HAS_TORCH_HEADERS>>,$<$<NOT:$<CONFIG:Debug>>:-O1>,-O0> -g1)
if("undefined" IN_LIST LOCKSTEP_SANITIZE)
    target_compile_options(lockstep_test_economy INTERFACE
        -fno-sanitize=null,alignment,object-size,vptr)
endif()

# What every test program is made with: GoogleTest, gmock's matchers, rapidcheck, tests/support.
add_library(lockstep_test_base INTERFACE)
target_include_directories(lockstep_test_base INTERFACE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(lockstep_test_base INTERFACE
    GTest::gmock GTest::gtest rapidcheck rapidcheck_gtest
    lockstep_warnings lockstep_numerics lockstep_sanitize lockstep_test_economy)
target_compile_features(lockstep_test_base INTERFACE cxx_std_20)

lockstep_add_headers(lockstep_test_headers HEADERS <gmock/gmock.h> <gtest/gtest.h> ${lockstep_usual_headers}
    LINK lockstep_test_base fmt::fmt)

set(lockstep_test_environment
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
    LOCKSTEP_H5PROBE=${PROJECT_BINARY_DIR}/bin/lockstep-h5probe
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp")

# lockstep_mpirun(RESULT ranks): the command line that starts so many ranks on this machine, on
# fewer cores if need be, talking over shared memory alone.
function(lockstep_mpirun result ranks)
    set(${result} ${MPIEXEC_EXECUTABLE} -np ${ranks} --oversubscribe --bind-to none
        --mca btl self,vader --mca mpi_yield_when_idle 1 PARENT_SCOPE)
endfunction()

# lockstep_mpirun_on(RESULT a:2,b:1): the same over hosts of network namespaces.
function(lockstep_mpirun_on result hosts)
    set(${result} ${PROJECT_SOURCE_DIR}/tests/support/two_hosts ${hosts} --
        ${MPIEXEC_EXECUTABLE} --bind-to none --mca mpi_yield_when_idle 1 PARENT_SCOPE)
endfunction()

# lockstep_limit_test(entry timeout): for what hangs. `timeout` is ample on a machine to itself, and others' load
# takes four times as long, as sanitizers do.
function(lockstep_limit_test entry timeout)
    math(EXPR timeout "${timeout} * 4")
    if(LOCKSTEP_SANITIZE)
        math(EXPR timeout "${timeout} * 4")
    endif()
    set_tests_properties(${entry} PROPERTIES TIMEOUT ${timeout})
endfunction()

# The program's own deadline comes before ctest's, so that there is time to name who is stuck. Tests of one
# process, and those that begin ranks and look at no times, leave cores idle: scripts/check runs three on two
# cores. Ranks of other tests have both cores to themselves then.
function(lockstep_register_test entry ranks timeout labels)
    set(processors 1)
    if(ranks GREATER 1)
        set(processors 3)
    endif()
    lockstep_limit_test(${entry} ${timeout})
    get_test_property(${entry} TIMEOUT timeout)
    math(EXPR deadline "${timeout} * 4 / 5")
    set_tests_properties(${entry} PROPERTIES
        ENVIRONMENT "${lockstep_test_environment};LOCKSTEP_TEST_DEADLINE_S=${deadline}"
        PROCESSORS ${processors} LABELS "${labels}")
endfunction()

# Tests with the label "threads": several threads meet in them. What ThreadSanitizer is for; between
# ranks, which are processes, it sees nothing.
add_custom_target(lockstep_threaded_tests)

function(lockstep_add_test name)
    cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;RANKS;HOSTS;LABELS" ${ARGN})
    string(REPLACE "/" "_" target test_${name})
    cmake_path(GET name PARENT_PATH module)
    string(REGEX REPLACE "/.*" "" top ${name})
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    add_executable(${target} ${arg_SOURCES})
    lockstep_unite_folders(${target} ${arg_SOURCES})
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
    if(NOT "lockstep::torch" IN_LIST arg_LINK)
        lockstep_precompile(${target} lockstep_test_headers)
    endif()
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/${top})
    target_link_libraries(${target} PRIVATE ${arg_LINK} lockstep_test_base)
    if("threads" IN_LIST arg_LABELS)
        add_dependencies(lockstep_threaded_tests ${target})
    endif()
    if(NOT arg_RANKS AND NOT arg_HOSTS)
        target_link_libraries(${target} PRIVATE GTest::gtest_main)
        add_test(NAME ${name} COMMAND ${target})
        lockstep_register_test(${name} 1 ${arg_TIMEOUT} "${module};${arg_LABELS}")
        return()
    endif()
    target_link_libraries(${target} PRIVATE lockstep::test_mpi)
    foreach(ranks IN LISTS arg_RANKS)
        lockstep_mpirun(command ${ranks})
        add_test(NAME ${name}.np${ranks} COMMAND ${command} $<TARGET_FILE:${target}>)
        lockstep_register_test(${name}.np${ranks} ${ranks} ${arg_TIMEOUT} "${module};mpi;${arg_LABELS}")
    endforeach()
    foreach(hosts IN LISTS arg_HOSTS)
        lockstep_mpirun_on(command ${hosts})
        string(REGEX REPLACE ",?[a-z][a-z0-9]*:" "-" slots ${hosts})
        add_test(NAME ${name}.hosts${slots} COMMAND ${command} $<TARGET_FILE:${target}>)
        lockstep_register_test(${name}.hosts${slots} 2 ${arg_TIMEOUT} "${module};mpi;hosts;${arg_LABELS}")
        set_tests_properties(${name}.hosts${slots} PROPERTIES SKIP_RETURN_CODE 77)
    endforeach()
endfunction()
