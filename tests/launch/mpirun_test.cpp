// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/mpirun.hpp"

#include "lockstep/core/process.hpp"
#include "lockstep/core/shell_word.hpp"

#include "launcher.hpp"
#include "support/caught.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// In which Open MPI lets root run.
Environment allowing() {
    return Environment({{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
}

LaunchRequest request_for(int np, bool oversubscribe) {
    LaunchRequest request;
    request.np = np;
    request.oversubscribe = oversubscribe;
    request.words = {"train", "--run", "a b"};
    request.program = "/bin/trainer";
    return request;
}

TEST(MpirunLine, StartsTheProgramWithItsWords) {
    const auto line = mpirun_line(request_for(1, false), allowing());
    EXPECT_THAT(std::vector(line.begin(), line.begin() + 3), ElementsAre("mpirun", "-np", "1"));
    EXPECT_THAT(std::vector(line.end() - 4, line.end()),
                ElementsAre("/bin/trainer", "train", "--run", "a b"));
    EXPECT_THAT(line, Not(Contains("--oversubscribe")));
}

TEST(MpirunLine, PutsOpenMpisFilesIntoTheGivenFolder) {
    LaunchRequest request = request_for(1, false);
    EXPECT_THAT(mpirun_line(request, allowing()), Not(Contains("orte_tmpdir_base")));
    request.folder = "/dev/shm/x";
    EXPECT_THAT(shell_text(mpirun_line(request, allowing())),
                testing::AllOf(testing::HasSubstr(" --mca orte_tmpdir_base /dev/shm/x "),
                               testing::HasSubstr(" --mca btl_vader_backing_directory /dev/shm/x "),
                               testing::HasSubstr(" --mca osc_sm_backing_directory /dev/shm/x ")));
}

TEST(MpirunLine, AsksNoResourceManagerAboutThisMachine) {
    EXPECT_THAT(shell_text(mpirun_line(request_for(1, false), allowing())),
                testing::AllOf(testing::HasSubstr(" --mca ras '^slurm,tm,"),
                               testing::HasSubstr(" --mca plm '^rsh,slurm,tm,"),
                               testing::HasSubstr(" --mca orte_default_hostfile none ")));
}

LaunchRequest request_on(const std::string& hosts, int np = 0) {
    LaunchRequest request = request_for(np, false);
    request.hosts = hosts;
    return request;
}

TEST(MpirunLine, StartsRanksOnHostsAndTakesNoSocketsWhereAllAreThisOne) {
    const auto text = shell_text(mpirun_line(request_on("127.0.0.1:2,127.0.0.1"), allowing()));
    EXPECT_THAT(text, testing::StartsWith("mpirun -np 3 --host 127.0.0.1:3 "));
    EXPECT_THAT(text, testing::HasSubstr("--mca btl self,vader --mca ras '^slurm,"));
    EXPECT_THAT(shell_text(mpirun_line(request_on("127.0.0.1:4", 2), allowing())),
                testing::StartsWith("mpirun -np 2 --host 127.0.0.1:4 "));
}

TEST(MpirunLine, RefusesHostsThatMakeNoSense) {
    const auto code = [](const LaunchRequest& request) {
        return test::caught_code([&] { mpirun_line(request, allowing()); });
    };
    EXPECT_EQ(code(request_on("no-such-host.invalid:2")), "E647");
    EXPECT_EQ(code(request_on("127.0.0.1:x")), "E607");
    EXPECT_EQ(code(request_on("127.0.0.1:2", 3)), "E607");
    EXPECT_THAT(test::caught_text([] { mpirun_line(request_on("::1:1"), allowing()); }),
                testing::HasSubstr("E647: host '::1' has no IPv4 address"));
}

TEST(LaunchNetwork, IsTheOneThatLeadsToAllHosts) {
    EXPECT_EQ(shell_text(network_words({.is_needed = true, .network = "10.0.0.0/24", .note = {}})),
              "--mca btl self,vader,tcp --mca btl_tcp_if_include 10.0.0.0/24 --mca "
              "oob_tcp_if_include 10.0.0.0/24");
    EXPECT_THAT(network_words({.is_needed = true, .network = {}, .note = {}}),
                ElementsAre("--mca", "btl", "self,vader,tcp"));
}

TEST(LaunchNetwork, CarriesMessagesBySocketsUnlessHostsHaveRdmaInCommon) {
    const Environment none{std::map<std::string, std::string>{}};
    const Environment chosen(std::map<std::string, std::string>{{"OMPI_MCA_pml", "ucx"}});
    const LaunchNetwork sockets{.is_needed = true, .network = "10.0.0.0/24", .note = {}};
    const LaunchNetwork rdma{
        .is_needed = true, .network = "10.0.0.0/24", .note = {}, .has_rdma = true};
    EXPECT_THAT(carrier_words(sockets, none), ElementsAre("--mca", "pml", "ob1"));
    EXPECT_THAT(carrier_words({}, chosen), ElementsAre("--mca", "pml", "ob1")) << "one node";
    EXPECT_THAT(carrier_words(rdma, none), testing::IsEmpty());
    EXPECT_THAT(carrier_words(sockets, chosen), testing::IsEmpty());
    EXPECT_EQ(network_words(rdma), network_words(sockets)) << "what there is beside it";
}

TEST(LaunchNetwork, IsTheUsersWhereVariablesChooseIt) {
    const std::vector<std::string> hosts{"192.0.2.7"};  // nobody's: nothing may be asked there
    const Environment environment(
        std::map<std::string, std::string>{{"OMPI_MCA_oob_tcp_if_include", "eth7"}});
    const auto network = network_towards(hosts, {}, environment);
    EXPECT_TRUE(network.is_needed);
    EXPECT_EQ(network.network, "");
    EXPECT_THAT(network.note, testing::HasSubstr("OMPI_MCA_oob_tcp_if_include is set"));
}

TEST(MpirunLine, AllowsMoreRanksThanCoresOnlyIfAsked) {
    EXPECT_THAT(mpirun_line(request_for(100'000, true), allowing()), Contains("--oversubscribe"));
    EXPECT_EQ(test::caught_code([] { mpirun_line(request_for(100'000, false), allowing()); }),
              "E601");
    const auto text = [] {
        return test::caught_text([] { mpirun_line(request_for(100'000, false), allowing()); });
    };
    EXPECT_THAT(text(), testing::Not(testing::HasSubstr("nodes of this job")));
    ::setenv("SLURM_JOB_NUM_NODES", "2", 1);
    EXPECT_THAT(text(), testing::HasSubstr("over the 2 nodes of this job: mpirun lockstep"));
    ::unsetenv("SLURM_JOB_NUM_NODES");
}

TEST(MpirunLine, RefusesRootWithoutLeave) {
    const Environment none{std::map<std::string, std::string>{}};
    const auto code = test::caught_code([&] { mpirun_line(request_for(1, false), none); });
    EXPECT_EQ(code, ::geteuid() == 0 ? "E603" : "");
}

TEST(ShellText, QuotesWhatAShellWouldChange) {
    EXPECT_EQ(shell_text({"mpirun", "-np", "2", "--lr=3e-4", "a/b_c.d:e,f+g@h%"}),
              "mpirun -np 2 --lr=3e-4 a/b_c.d:e,f+g@h%");
    EXPECT_EQ(shell_text({"a b", "", "$HOME", "it's", "x;y", "*"}),
              R"('a b' '' '$HOME' 'it'\''s' 'x;y' '*')");
    EXPECT_EQ(shell_text({}), "");
}

TEST(ShellText, IsReadBackByAShell) {
    const std::vector<std::string> words = {"printf", "%s\\n", "a b", "it's", "$x `y` \"z\"", "~"};
    const auto result = run_process({"sh", "-c", shell_text(words)});
    EXPECT_EQ(result.output, "a b\nit's\n$x `y` \"z\"\n~\n");
}

}  // namespace
}  // namespace lockstep
