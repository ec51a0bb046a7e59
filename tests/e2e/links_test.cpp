// SPDX-License-Identifier: Apache-2.0
// A slow link between nodes: hosts in namespaces, one of which sends through a narrow pipe.
#include "program.hpp"

namespace lockstep::test {
namespace {

/// On hosts a, b and c, of which `slow` ("": none) sends 25 MB/s at most.
ProcessResult train_on_hosts(const fs::path& run, const std::string& slow) {
    const std::string script =
        "[ -z \"$1\" ] || \"$0\" --on \"$1\" tc qdisc add dev eth0 root tbf rate 200mbit burst "
        "32kb "
        "latency 100ms && shift && exec \"$@\"";
    const Words hosts = {LOCKSTEP_TWO_HOSTS, "a:1,b:1,c:1", "--", "sh", "-c", script};
    const Words mpirun = {LOCKSTEP_TWO_HOSTS, slow, "mpirun", "--bind-to", "none", program()};
    return run_process(hosts + mpirun + train_words(SmallData::get().train(), run, "mlp", 48) +
                           typed("--virtual-ranks 4 --max-steps 120"),
                       {{"OMPI_MCA_mpi_yield_when_idle", "1"}},
                       ample_s);
}

/// Trains with and without a slow link. Three hosts share the cores: a rank that others keep from
/// its core for longer than any link does is named for that, and rightly.
testing::AssertionResult is_named_where_slow(const fs::path& folder) {
    const std::string named = "rank 1 on b holds the others up by ";
    const std::string cause = "its node's link is slow: ";
    const ProcessResult alike = train_on_hosts(folder / "alike", "");
    const ProcessResult slow = train_on_hosts(folder / "slow", "b");
    const ProcessResult report = run_lockstep({"report", folder / "slow"});
    EXPECT_EQ(alike.exit_code, 0) << alike.output;
    EXPECT_EQ(slow.exit_code, 0) << slow.output;
    const auto at_end = has("\nwhy           " + named, cause);
    const bool holds = testing::Value(alike.output, Not(has("link is slow"))) &&
                       testing::Value(slow.output, at_end) &&
                       testing::Value(report, says(named, cause));
    if (holds) return testing::AssertionSuccess();
    return testing::AssertionFailure() << alike.output << slow.output << report.output;
}

TEST(SlowLink, IsNamedWithItsNodeAtTheEndAndInTheReport) {
    if (const auto why = hosts_obstacle(LOCKSTEP_TWO_HOSTS); !why.empty()) GTEST_SKIP() << why;
    const TempDir folder;
    testing::AssertionResult holds = testing::AssertionFailure();
    for (const char* name : {"first", "second", "third"})
        if (!holds) holds = is_named_where_slow(folder / name);
    EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace lockstep::test
