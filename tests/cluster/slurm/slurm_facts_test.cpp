// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "mini_cluster_text.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

TEST(SlurmFacts, ReadsPartitions) {
    const auto partitions = parse_partitions(test::mini_partitions);
    ASSERT_EQ(partitions.size(), 4u);
    EXPECT_EQ(partitions[0].name, "debug");
    EXPECT_TRUE(partitions[0].is_default);
    EXPECT_EQ(partitions[0].state, "UP");
    EXPECT_EQ(partitions[0].total_nodes, 2);
    EXPECT_EQ(partitions[0].most_seconds, 600);
    EXPECT_FALSE(partitions[0].most_nodes.has_value());
    EXPECT_TRUE(partitions[0].accounts.empty());
    EXPECT_EQ(partitions[1].most_seconds, 86'400);
    EXPECT_FALSE(partitions[1].is_default);
}

TEST(SlurmFacts, ReadsGroupsOfNodes) {
    const auto groups =
        parse_node_groups("gpu|mixed|2|8+|8000|gpu:h100:4(S:0-1),gpu:2|2:2+:2|a,b|n[1-2]\n");
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_EQ(groups[0].nodes, 2);
    EXPECT_EQ(groups[0].cpus, 8);
    EXPECT_EQ(groups[0].gpus_of("h100"), 4);
    EXPECT_EQ(groups[0].gpus_of(""), 6);
    EXPECT_EQ(groups[0].gpus_of("a100"), 0);
    EXPECT_TRUE(groups[0].is_usable());
    EXPECT_EQ(groups[0].sockets, 2);
    EXPECT_EQ(groups[0].socket_cores, 2);
    EXPECT_EQ(groups[0].core_threads, 2);
    EXPECT_THAT(groups[0].features, ElementsAre("a", "b"));
    EXPECT_THAT(groups[0].names, ElementsAre("n1", "n2"));
}

TEST(SlurmFacts, ExpandsListsOfHosts) {
    EXPECT_THAT(expand_hosts("node[08-10,3],head").value(),
                ElementsAre("node08", "node09", "node10", "node3", "head"));
    EXPECT_THAT(expand_hosts("r[1-2]n[1-2]").value(), ElementsAre("r1n1", "r1n2", "r2n1", "r2n2"));
    EXPECT_THAT(expand_hosts("a[1]-ib").value(), ElementsAre("a1-ib"));
    EXPECT_FALSE(expand_hosts("").has_value());
    for (const std::string& text : split("a,,b a[ a]b[ a[1-] a[x] a[3-1] a[1-2-3] a[[1]] "
                                         "a[0-99999999] a[0-999]b[0-999] a[1-99999999999]",
                                         ' '))
        EXPECT_FALSE(expand_hosts(text).has_value()) << text;
}

// What SLURM 22.05.8 printed on the mini cluster, with two reservations and a licence.
TEST(SlurmFacts, ReadsReservationsAndLicences) {
    const auto found = parse_reservations(
        "ReservationName=later StartTime=2026-11-22T04:15:04 EndTime=2026-11-22T04:20:04 "
        "Duration=00:05:00 Nodes=node1 NodeCnt=1 CoreCnt=8 Features=(null) PartitionName=(null) "
        "Flags=SPEC_NODES TRES=cpu=8 Users=root Groups=(null) Accounts=(null) Licenses=(null) "
        "State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
        "ReservationName=bobs StartTime=2026-11-22T03:15:04 EndTime=2026-11-22T03:45:04 "
        "Duration=00:30:00 Nodes=node2 NodeCnt=1 CoreCnt=8 Features=(null) PartitionName=(null) "
        "Flags=SPEC_NODES TRES=cpu=8 Users=nobody,bob Groups=(null) Accounts=phys Licenses=(null) "
        "State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n");
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].name, "later");
    EXPECT_EQ(found[0].state, "INACTIVE");
    EXPECT_EQ(found[0].start, "2026-11-22T04:15:04");
    EXPECT_EQ(found[0].nodes, 1);
    EXPECT_TRUE(found[0].accounts.empty());
    EXPECT_THAT(found[1].users, ElementsAre("nobody", "bob"));
    EXPECT_THAT(found[1].accounts, ElementsAre("phys"));
    EXPECT_TRUE(parse_reservations("No reservations in the system\n").empty());
    EXPECT_EQ(parse_licences("LicenseName=matlab Total=2 Used=0 Free=2 Reserved=0 Remote=no\n"),
              (std::map<std::string, std::int64_t>{{"matlab", 2}}));
    EXPECT_TRUE(parse_licences("No licenses configured in Slurm.\n").empty());
}

// The form of sacctmgr -n -P; there is no slurmdbd on the mini cluster.
TEST(SlurmFacts, ReadsAssociations) {
    const auto found = parse_associations("proj1|normal,high\nproj2|normal\nproj1|\n");
    EXPECT_THAT(found.accounts, ElementsAre("proj1", "proj2"));
    EXPECT_THAT(found.qos, ElementsAre("normal", "high"));
    EXPECT_EQ(caught_code([] { parse_associations("proj1\n"); }), "E511");
}

TEST(SlurmFacts, KnowsNodesThatAreAway) {
    for (const char* state : {"down", "down*", "drained", "draining", "idle*", "fail", "unknown"})
        EXPECT_FALSE((NodeGroup{.state = state}.is_usable())) << state;
    for (const char* state : {"idle", "mixed", "allocated", "completing", "reserved", "idle~"})
        EXPECT_TRUE((NodeGroup{.state = state}.is_usable())) << state;
}

TEST(SlurmFacts, RefusesTextsThatAreNotSlurms) {
    EXPECT_EQ(caught_code([] { parse_partitions("PartitionName=x State=UP"); }), "E511");
    EXPECT_EQ(caught_code([] { parse_partitions("hello"); }), "E511");
    EXPECT_EQ(caught_code([] { parse_node_groups("gpu|idle|2"); }), "E511");
    for (const char* line :
         {"gpu|idle|x|8|1|(null)|1:8:1|(null)|n1", "gpu|idle|1|8|1|(null)|8|(null)|n1"})
        EXPECT_EQ(caught_code([&] { parse_node_groups(line); }), "E511") << line;
}

TEST(SlurmFacts, ReadsConfigAndMpiTypes) {
    auto config = parse_slurm_config(
        "Configuration data as of 2026-11-22T00:20:57\n"
        "AccountingStorageType   = accounting_storage/none\n"
        "MaxArraySize            = 1001\n");
    EXPECT_EQ(config["MaxArraySize"], "1001");
    EXPECT_EQ(config["AccountingStorageType"], "accounting_storage/none");
    EXPECT_THAT(parse_mpi_types("MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\n"
                                "specific pmix plugin versions available: pmix_v4\n"),
                testing::IsSupersetOf({"pmix", "none", "pmi2", "pmix_v4"}));
    EXPECT_THAT(parse_mpi_types("MPI plugin types are...\n\tnone\n"), Not(Contains("pmix")));
}

TEST(SlurmTime, HasSlurmsForms) {
    EXPECT_EQ(parse_slurm_time("10"), 600);
    EXPECT_EQ(parse_slurm_time("10:30"), 630);
    EXPECT_EQ(parse_slurm_time("01:02:03"), 3723);
    EXPECT_EQ(parse_slurm_time("2-3"), 2 * 86'400 + 3 * 3600);
    EXPECT_EQ(parse_slurm_time("2-03:04"), 2 * 86'400 + 3 * 3600 + 240);
    EXPECT_EQ(parse_slurm_time("1-00:00:00"), 86'400);
    for (const char* text :
         {"abc", "", "-", "1-", "1:2:3:4", "-5", "1e3", "9999999999", "UNLIMITED"})
        EXPECT_FALSE(parse_slurm_time(text).has_value()) << text;
    EXPECT_EQ(slurm_time_text(86'400), "1-00:00:00");
    EXPECT_EQ(slurm_time_text(630), "00:10:30");
}

// What sinfo printed without a controller, and without munge.
TEST(SlurmFailure, TellsAControllerFromMunge) {
    const Error away = slurm_failure(
        "sinfo", "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n");
    EXPECT_EQ(away.code(), "E511");
    EXPECT_THAT(away.why(), HasSubstr("Unable to contact"));
    const Error munge = slurm_failure(
        "sinfo",
        "sinfo: error: If munged is up, restart with --num-threads=10\n"
        "sinfo: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\"\n"
        "slurm_load_partitions: Protocol authentication error\n");
    EXPECT_EQ(munge.code(), "E530");
    EXPECT_EQ(munge.exit_code(), ExitCode::service_away);
}

}  // namespace
}  // namespace lockstep
