// SPDX-License-Identifier: Apache-2.0
// `lockstep drill`: quick faults that have to pass, what is skipped, and nothing left after Ctrl-C.
#include "program.hpp"

#include <csignal>

namespace lockstep::test {
namespace {

/// How many things are in a folder.
std::size_t count_in(const fs::path& folder) {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(Drill, SeesAKilledRankEndAsItShould) {
    const TempDir scratch, out;
    EXPECT_THAT(run_lockstep(Words{"drill", "--fault", "killed-rank,node-loss"} +
                             Words{"--scratch", scratch.path(), "--json"} +
                             Words{"--out", out / "page.json"}),
                ends(0));
    const Json page = read_json(out / "page.json");
    EXPECT_EQ(page["passed"].get<int>(), 1) << page;
    EXPECT_EQ(page["skipped"].get<int>(), 1) << page;
    EXPECT_EQ(page["faults"][0]["fault"].get<std::string>(), "killed-rank");
    EXPECT_THAT(page["faults"][0]["done"].get<std::string>(), has("kill -9 of rank 1"));
    EXPECT_EQ(page["faults"][0]["expectations"].size(), 4u) << page;
    EXPECT_THAT(page["faults"][1]["why_skipped"].get<std::string>(), has("two nodes"));
    EXPECT_EQ(count_in(scratch.path()), 0u);
}

TEST(Drill, LeavesNothingAfterCtrlC) {
    const TempDir scratch, out;
    Background drill({program(), "drill", "--fault", "killed-rank", "--scratch", scratch.path()},
                     out / "said");
    const auto trains = [&] {
        for (const auto& entry : fs::directory_iterator(scratch.path()))
            if (fs::exists(entry.path() / "undisturbed" / "incarnation")) return true;
        return false;
    };
    ASSERT_TRUE(eventually(trains)) << read_file(out / "said");
    drill.send(SIGINT);
    EXPECT_EQ(drill.wait(60), 130) << read_file(out / "said");
    EXPECT_EQ(count_in(scratch.path()), 0u);
    EXPECT_TRUE(eventually([&] { return processes_with(scratch.path()).empty(); }, 30));
}

TEST(Drill, SaysWhatIsWrongWithItsOptions) {
    const TempDir folder;
    const auto code_of = [](const Words& words) { return run_lockstep(Words{"drill"} + words); };
    EXPECT_THAT(code_of({"--out", folder / "none" / "page.md"}), says("error E401: "));
    EXPECT_THAT(code_of({"--out", folder.path()}), says("it is a folder"));
    EXPECT_THAT(code_of({"--scratch", folder / "none"}), says("error E401: "));
    EXPECT_THAT(code_of({"--np", "1"}), says("error E102: "));
    EXPECT_THAT(code_of({"--fault", "killed-rnk"}), says("'killed-rank'"));
    EXPECT_THAT(code_of({"--killed-rank"}), says("fix: --fault killed-rank"));
}

}  // namespace
}  // namespace lockstep::test
