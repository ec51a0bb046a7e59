// SPDX-License-Identifier: Apache-2.0
// `lockstep map`: plans without running anything, and the job that runs.
#include "program.hpp"

#include <filesystem>

#include <sched.h>

namespace lockstep::test {
namespace {

std::string fixture(const std::string& name) {
    return std::string(LOCKSTEP_TOPOLOGIES) + "/" + name + ".json";
}

std::string map_of(const Words& words, int exit_code = 0) {
    return output_of(run_lockstep(Words{"map"} + words), exit_code);
}

TEST(MapCommand, DividesTheCoresOfANodeAmongItsRanks) {
    EXPECT_THAT(map_of({"--topology", fixture("cpu16"), "--ntasks-per-node", "4"}),
                has("4 ranks x 4 threads"));
}

TEST(MapCommand, RefusesWhatMakesNoSense) {
    EXPECT_THAT(map_of({"--hosts", "r1:4", "-np", "7"}, 64), has("E607"));
    EXPECT_THAT(map_of({"--hosts", "r1:4", "--nodes", "2"}, 64), has("E106"));
    EXPECT_THAT(map_of({"--hosts", "r1:4", "--format", "srun"}, 64), has("E645"));
    EXPECT_THAT(map_of({"--topology", "none.json"}, 66), has("E201"));
    EXPECT_THAT(map_of({"--check", "none.json"}, 66), has("E201"));
    EXPECT_THAT(map_of({"--topology", fixture("workstation"), "-np", "5"}, 78), has("E608"));
}

TEST(MapCommand, SavesThisNodeAndPlansFromIt) {
    const TempDir folder;
    const std::string file = (folder / "node.json").string();
    EXPECT_THAT(map_of({"--save-topology", file}), has("1 node | 1 rank"));
    EXPECT_THAT(map_of({"--topology", file, "-np", "1"}), has("1 node | 1 rank"));
}

TEST(MapCommand, ShowsTheJobThatRuns) {
    EXPECT_THAT(run_under_mpirun(2, {"map", "--oversubscribe"}),
                ends(0, "1 node | 2 ranks", "\n1     "));
}

std::vector<int> own_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    ::sched_getaffinity(0, sizeof set, &set);
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    return cpus;
}

/// What two ranks of `train` say, each put on the first core; there are no data, so none trains.
std::string start_on_one_core(const Words& more = {}) {
    const TempDir folder;
    const Words bound{"taskset", "-c", std::to_string(own_cpus().front()), program()};
    const Words train{"train", "--data", "none", "--run", (folder / "run").string()};
    const std::string result = output_of(
        run_process(mpirun_words(2) + bound + train + more, {{"LOCKSTEP_BOUND", "off"}}, ample_s),
        testing::Ne(0));
    EXPECT_FALSE(std::filesystem::exists(folder / "run"));
    return result;
}

TEST(TrainStart, RefusesOneCoreForTwoRanksWhereThereIsAnother) {
    if (own_cpus().size() < 2) GTEST_SKIP() << "one core only: it must be shared";
    EXPECT_THAT(
        start_on_one_core(),
        has("E609: ranks 0 and 1 share core ", "fix: mpirun --bind-to core --map-by slot:PE="));
    for (const Words& allowing :
         {Words{"--skip-checks", "C2"}, {"--skip-checks", "all"}, {"--oversubscribe"}})
        EXPECT_THAT(start_on_one_core(allowing), has(Not(has("E609")), "E201"));
}

TEST(MapCommand, ComparesAJobWithItsPlan) {
    const TempDir folder;
    const std::string file =
        folder.file("plan.json", map_of({"-np", "1", "--format", "json"})).string();
    EXPECT_THAT(map_of({"--check", file}), has("as planned: 1 rank(s)"));
    EXPECT_THAT(
        run_under_mpirun(2, {"map", "--check", file}),
        ends(78, "E644: the job does not run as planned: 1 ranks are planned, 2 are found"));
}

}  // namespace
}  // namespace lockstep::test
