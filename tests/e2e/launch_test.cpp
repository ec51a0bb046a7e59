// SPDX-License-Identifier: Apache-2.0
// Starting and ending ranks on this machine: signals at any moment, too little room, low limits,
// other launchers, and what mpirun says of itself. Also run with the mpirun of Open MPI 5.
#include "program.hpp"

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>

#include <unistd.h>

namespace lockstep::test {
namespace {

constexpr std::int64_t usual_steps = 600, few_steps = 3;

class Launch : public RunsTest {
  protected:
    Words train(int ranks, std::int64_t length = usual_steps) const {
        return train_words(train_data(), run_, "mlp", 24) + on_ranks(ranks) +
               typed("--virtual-ranks 4 --max-steps % --checkpoint-every never",
                     {std::to_string(length)});
    }

    /// Trains far longer than any signal to it may be late.
    std::unique_ptr<Background> start(int ranks) const { return started(train(ranks, 1'000'000)); }

    /// Waits until `signal` would not be lost any more: it is blocked by main().
    static bool holds(const Background& job, int signal) {
        return eventually([&] {
            std::istringstream lines(
                content_of(fmt::format("/proc/{}/status", static_cast<int>(job.pid()))));
            for (std::string line; std::getline(lines, line);)
                if (line.starts_with("SigBlk:"))
                    return ((std::stoull(line.substr(7), nullptr, 16) >> (signal - 1)) & 1) != 0;
            return false;
        });
    }

    /// In a shell with `setup` before the program.
    ProcessResult run_after(const std::string& setup, const Variables& variables = {}) const {
        std::string line = setup + "; exec \"$@\"";
        return run_process(
            Words{"timeout", "-s", "KILL", "100", "bash", "-c", line, "bash", program()} +
                train(2, few_steps),
            variables,
            120);
    }

    /// What is said of a stop is what the run's state says.
    void expect_true_word() const {
        if (!fs::exists(run_ / "incarnation")) {
            EXPECT_THAT(output(), has("stopped before the ranks began: nothing was done"));
            return;
        }
        const auto step = state_step(run_);
        EXPECT_THAT(state_of(run_), StartsWith("checkpointed, step "));
        EXPECT_EQ(step > 0, fs::exists(checkpoint_of(run_, step)));
        EXPECT_THAT(output(),
                    has(step > 0 ? fmt::format("stopped after step {}; ", step)
                                 : "stopped before anything was saved; "));
    }

    // Steps are logged once in an epoch of 25: some were done after the newest one.
    void expect_completes() const {
        const std::int64_t length = newest_step(run_) + 100;
        EXPECT_THAT(run_lockstep(train(1, length)), ends(0));
        EXPECT_EQ(state_of(run_), fmt::format("complete, step {}, exit 0", length));
    }
};

struct EarlySignal {
    int ranks, signal;
    double after_s;
};

class LaunchEarly : public Launch, public testing::WithParamInterface<EarlySignal> {};

TEST_P(LaunchEarly, ASignalIsMetAndTheSameCommandGoesOn) {
    const EarlySignal early = GetParam();
    auto job = start(early.ranks);
    ASSERT_TRUE(holds(*job, early.signal));
    ::usleep(static_cast<useconds_t>(early.after_s * 1e6));
    job->send(early.signal);
    EXPECT_EQ(job->wait(60), early.signal == SIGINT ? 130 : 75) << output();
    expect_nothing_left();
    expect_true_word();
    expect_completes();
}

INSTANTIATE_TEST_SUITE_P(,
                         LaunchEarly,
                         testing::Values(EarlySignal{2, SIGTERM, 0},
                                         EarlySignal{2, SIGUSR1, 0.08},
                                         EarlySignal{2, SIGHUP, 0.4},
                                         EarlySignal{2, SIGTERM, 0.8},
                                         EarlySignal{2, SIGINT, 0},
                                         EarlySignal{2, SIGINT, 1.1},
                                         EarlySignal{1, SIGTERM, 0},
                                         EarlySignal{1, SIGHUP, 0.2}),
                         [](const auto& test) {
                             return fmt::format("Of{}RanksBy{}After{}Ms",
                                                test.param.ranks,
                                                sigabbrev_np(test.param.signal),
                                                static_cast<int>(1e3 * test.param.after_s));
                         });

// As `| head` and a killed `tee` do.
TEST_F(Launch, GoesOnAndSavesWithoutAReader) {
    for (const int ranks : {1, 2}) {
        const std::string line =
            R"("$@" --log-every 20 2>"$ERRORS" | head -1; echo ${PIPESTATUS[0]})";
        EXPECT_THAT(run_process(Words{"bash", "-c", line, "bash", program()} + train(ranks),
                                {{"ERRORS", folder_ / "errors"}},
                                100),
                    says(EndsWith("\n0\n")))
            << ranks;
        EXPECT_EQ(state_of(run_), fmt::format("complete, step {}, exit 0", usual_steps));
        const std::string errors = content_of(folder_ / "errors");
        const std::string said = "warn: stdout is closed: the training continues";
        EXPECT_THAT(errors, has(said));
        EXPECT_EQ(errors.find(said), errors.rfind(said));
        EXPECT_THAT(run_lockstep({"logs", run_}), says("stdout is closed"));
        fs::remove_all(run_);
    }
}

/// A model that does not give numbers any more after some steps.
Variables without_numbers(const std::string& how) {
    return {{"LD_PRELOAD", LOCKSTEP_OTHER_NUMBERS}, {"OTHER_NUMBERS", how}, {"OTHER_AFTER", "400"}};
}

TEST_F(Launch, NamesAModelThatEndsTheProcess) {
    for (const auto& [ranks, how] : {std::pair{1, "exit"}, {1, "_Exit"}, {2, "exit"}}) {
        EXPECT_THAT(run_lockstep(train(ranks), without_numbers(how)),
                    ends(70, "error E713: the model ended the process: it called"));
        EXPECT_THAT(state_of(run_), MatchesRegex("failed, step [0-9]+, exit 70"));
        EXPECT_THAT(run_lockstep({"status", run_}), says("E713: "));
        fs::remove_all(run_);
    }
}

TEST_F(Launch, NamesAModelThatLoopsForEver) {
    EXPECT_THAT(run_lockstep(train(1) + Words{"--comm-timeout", "1s"}, without_numbers("loop")),
                ends(76,
                     "error E660: rank 0 (",
                     ") has not finished a phase for ",
                     "and is in update since "));
    EXPECT_THAT(state_of(run_), EndsWith("exit 76"));
    EXPECT_THAT(run_lockstep({"diagnose", run_}), ends(76, "no progress: rank 0 ("));
    EXPECT_THAT(run_lockstep({"logs", run_, "--first-error"}), says("no progress"));
}

TEST_F(Launch, ReachesRanksThroughAStoppedMpirun) {
    auto job = start(2);
    ASSERT_TRUE(job->trains(run_));
    const auto mpirun = children_of(job->pid());
    ASSERT_EQ(mpirun.size(), 1u) << output();
    ::kill(mpirun.front(), SIGSTOP);
    job->send(SIGTERM);
    EXPECT_EQ(job->wait(60), 75) << output();
    expect_nothing_left();
}

// As where both are killed while the rank is still being loaded: MPI_Init would wait for mpirun.
TEST_F(Launch, LeavesNoRankThatBeginsAfterItsLauncherIsGone) {
    const auto gone = std::make_unique<Background>(Words{"true"}, folder_ / "output");
    EXPECT_EQ(gone->wait(60), 0);
    const auto launched_by = [&](pid_t pid) {
        return run_process(Words{program()} + train(2),
                           {{"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_RANK", "0"},
                            {"LOCKSTEP_LAUNCHER_PID", std::to_string(pid)},
                            {"TMPDIR", folder_.path()}},  // Open MPI 5 leaves a folder there
                           60);
    };
    EXPECT_THAT(launched_by(gone->pid()), ends(137));
    EXPECT_THAT(launched_by(::getpid()), ends(testing::Ne(137)));
}

TEST_F(Launch, GoesOnWhereSharedMemoryIsTooSmallForOpenMpi) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may mount a small /dev/shm";
    for (const char* size : {"2m", "8m"}) {
        EXPECT_THAT(
            run_process(
                typed("unshare -m timeout -s KILL 100 bash -c % bash %",
                      {fmt::format("mount -t tmpfs -o size={} tmpfs /dev/shm; exec \"$@\"", size),
                       program()}) +
                    train(2, few_steps),
                {},
                120),
            ends(0, "/dev/shm has " + std::string(size, 1) + " MiB: they go to"));
        fs::remove_all(run_);
    }
}

TEST_F(Launch, NamesALimitUnderWhichMpirunWouldWaitForEver) {
    EXPECT_THAT(run_after("ulimit -n 32"),
                ends(78, "error E693: this process may open 32 files, mpirun needs 48"));
    EXPECT_THAT(run_after("ulimit -f 2000"),
                ends(78, "error E693: files of this process may have at most 2.0 MiB"));
    EXPECT_FALSE(fs::exists(run_));
    EXPECT_THAT(run_after("ulimit -S -n 32"), ends(0));
}

TEST_F(Launch, RefusesThreadsThatWouldTakeMinutesForAStep) {
    if (std::thread::hardware_concurrency() >= 64) GTEST_SKIP() << "1024 are not too many here";
    Words words = train(1) + Words{"--threads", "1024"};
    std::erase(words, "--oversubscribe");
    EXPECT_THAT(run_lockstep(words), ends(64, "error E601: --threads 1024 asks for more than 16"));
    EXPECT_FALSE(fs::exists(run_));
}

TEST_F(Launch, NamesBothNumbersIfALauncherStartedOtherRanksThanAsked) {
    EXPECT_THAT(run_under_mpirun(1, train(2, few_steps)),
                ends(78, "error E604: mpirun started 1 rank(s), but 2 are requested"));
    EXPECT_FALSE(fs::exists(run_));
    EXPECT_THAT(run_under_mpirun(2, train(2, few_steps)), ends(0, "2 ranks x"));
}

TEST_F(Launch, TakesVariablesOfAnotherLaunchForNone) {
    EXPECT_THAT(run_lockstep(train(2, few_steps),
                             {{"PMI_RANK", "0"}, {"PMIX_RANK", "0"}, {"OMPI_UNIVERSE_SIZE", "3"}}),
                ends(0, "2 ranks x"));
}

TEST_F(Launch, RefusesMpichsMpiexec) {
    const Variables of_mpiexec{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
    for (const Words& words : {train(1, few_steps), train(2, few_steps)}) {
        EXPECT_THAT(run_lockstep(words, of_mpiexec),
                    ends(78, "error E604: mpiexec started 2 processes"));
    }
    EXPECT_FALSE(fs::exists(run_));
    EXPECT_THAT(run_lockstep({"doctor", "--only", "D"}, of_mpiexec), ends(78, "D1"));
}

TEST_F(Launch, SaysThatTasksOfABatchScriptAreIdle) {
    EXPECT_THAT(run_lockstep(train(1, few_steps),
                             {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}),
                ends(0, "warn: D1: this process is 1 of the 4 tasks of the SLURM job; fix: srun"));
}

TEST_F(Launch, RefusesLaunchersOfCommandsThatStartRanksThemselves) {
    const std::string one = " under a launcher of one rank";
    for (const Words& words : {Words{"verify", "--data", "D"}, {"tune", "D"}, {"drill"}}) {
        const std::string named = "error E106: 'lockstep " + words[0] + "'";
        EXPECT_THAT(run_under_mpirun(1, words), ends(64, named + one));
        EXPECT_THAT(run_under_mpirun(2, words), ends(64, named + " under a launcher of several"));
        EXPECT_THAT(run_lockstep(words, {{"SLURM_STEP_ID", "0"}}), ends(64, named + one));
    }
    EXPECT_THAT(run_under_mpirun(2, {"export", run_, "--out", run_ / "a.safetensors"}),
                ends(64, "error E106: 'lockstep export' under a launcher of several"));
    // salloc's shell is a step of SLURM's own.
    EXPECT_THAT(run_lockstep({"verify"}, {{"SLURM_STEP_ID", "4294967290"}}), ends(64, "E105"));
}

// A job or step of one task, and one that is over: its nodes and tasks are not asked for. Nor is
// ssh needed: a container may have none.
TEST_F(Launch, StartsRanksOfThisMachineWhateverSlurmSays) {
    EXPECT_THAT(run_lockstep(train(2, few_steps),
                             {{"SLURM_JOBID", "1"},
                              {"SLURM_JOB_ID", "1"},
                              {"SLURM_JOB_NODELIST", "nowhere"},
                              {"SLURM_NODELIST", "nowhere"},
                              {"SLURM_NNODES", "1"},
                              {"SLURM_TASKS_PER_NODE", "1"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "1"},
                              {"OMPI_MCA_plm_rsh_agent", "no-such-agent"}}),
                ends(0, Not(has("D3"))));
}

// Files that Open MPI 4.1 and 5.0 read.
TEST_F(Launch, PassesOnWhyMpirunStartsNoRank) {
    for (const auto& [folder, line] :
         {std::pair{".openmpi", "rmaps_base_mapping_policy = ppr:1:node"},
          std::pair{".prte", "rmaps_default_mapping_policy = ppr:1:node"}}) {
        fs::create_directory(folder_ / folder);
        folder_.file(std::string(folder) + "/mca-params.conf", std::string(line) + "\n");
    }
    EXPECT_THAT(run_lockstep(train(2, few_steps), {{"HOME", folder_.path().string()}}),
                ends(78,
                     "Open MPI: Your job has requested more processes",
                     "PPR: 1:node",
                     Not(has("-----")),
                     "error E697: mpirun ended with exit code ",
                     "take the lines out of " + (folder_ / ".openmpi/mca-params.conf").string()));
    fs::remove_all(folder_ / ".openmpi");
    fs::remove_all(folder_ / ".prte");
    EXPECT_THAT(run_lockstep(train(2, few_steps), {{"HOME", folder_.path().string()}}), ends(0));
}

TEST_F(Launch, SaysIfTheFirstMpirunIsAnotherMpis) {
    for (const auto& [version, owner] :
         {std::pair{"HYDRA build details:", "MPICH's"},
          {"Intel(R) MPI Library for Linux* OS, Version 2021.14", "Intel MPI's"},
          {"mpirun of somebody", "not Open MPI's"}}) {
        const fs::path other =
            folder_.file("mpirun", fmt::format("#!/bin/sh\necho '{}'; exit 255\n", version));
        fs::permissions(other, fs::perms(0755));
        EXPECT_THAT(
            run_lockstep(train(2, few_steps),
                         {{"PATH", folder_.path().string() + ":" + std::getenv("PATH")}}),
            ends(78,
                 fmt::format(
                     "the mpirun that comes first in PATH is {} ({})", owner, other.string())));
    }
}

TEST_F(Launch, RefusesAHostNameThatOpenMpi4DoesNotSurvive) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may name a host";
    const auto on_host = [&](std::size_t length) {
        return run_process(
            typed("unshare -u sh -c % sh %",
                  {"hostname " + std::string(length, 'n') + "; exec \"$@\"", program()}) +
                train(2, few_steps),
            {},
            100);
    };
    const bool is_old =
        run_process({"mpirun", "--version"}).output.find("(Open MPI) 4.") != std::string::npos;
    const std::string longer = output_of(on_host(57), is_old ? 78 : 0);
    if (!is_old) return;
    EXPECT_THAT(longer, has("E697: this mpirun crashes on a host whose name has 57 characters"));
    EXPECT_THAT(on_host(56), ends(0));
}

// Open MPI 4.1 looks for a home, which neither a variable nor the password file names.
TEST_F(Launch, NeedsNoHome) {
    const auto as_stranger = [](const Words& words) {
        const Words stranger{"setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"};
        const Words bare{"env", "-i", std::string("PATH=") + std::getenv("PATH"), program()};
        return run_process(stranger + bare + words, {}, 100);
    };
    if (::geteuid() != 0 || as_stranger({"version"}).exit_code != 0)
        GTEST_SKIP() << "no other user can start it";
    EXPECT_THAT(as_stranger({"doctor", "--np", "2", "--oversubscribe", "--only", "D1"}), ends(0));
}

TEST_F(Launch, BindsRanksAlsoWhereVariablesHaveOpenMpBindThem) {
    if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core only";
    const Variables binding{{"OMP_PROC_BIND", "spread"}, {"OMP_PLACES", "threads"}};
    Words words = train(2, few_steps);
    std::erase(words, "--oversubscribe");
    EXPECT_THAT(run_lockstep(words, binding), ends(0));
    fs::remove_all(run_);
    EXPECT_THAT(run_lockstep(train(1, few_steps) + Words{"--threads", "2"}, binding),
                ends(0, Not(has("threads share CPU"))));
}

TEST_F(Launch, NamesAPlaceForTemporaryFilesThatIsNotThere) {
    EXPECT_THAT(run_lockstep({"verify", "--data", train_data()}, {{"TMPDIR", "/nonexistent"}}),
                ends(66, "'/nonexistent (TMPDIR)'"));
}

}  // namespace
}  // namespace lockstep::test
