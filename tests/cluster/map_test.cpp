// SPDX-License-Identifier: Apache-2.0
// The map of a job: its plan, and the row of each of its ranks.
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"

#include "cluster/placement/placement_cases.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

using test::node_of;

Placement plan_of(const std::string& hosts,
                  int ranks,
                  const NodeTopology* node,
                  MapBy by = MapBy::slot) {
    const auto parsed = parse_hosts(hosts);
    return plan_job(parsed, lay_out(parsed, ranks, by), node, {});
}

/// "host.local" by rank.
std::vector<std::string> places_of(const Placement& plan) {
    std::vector<std::string> places;
    for (const auto& seat : plan.seats)
        places.push_back(seat.host + "." + std::to_string(seat.local_rank));
    return places;
}

TEST(Map, LaysOutTheBooksTable) {
    EXPECT_THAT(places_of(plan_of("r1:4,r2:2", 6, nullptr)),
                ElementsAre("r1.0", "r1.1", "r1.2", "r1.3", "r2.0", "r2.1"));
    EXPECT_EQ(placement_table(plan_of("r1:4,r2:2", 6, nullptr)),
              "2 nodes | 6 ranks\n"
              "rank  node  local  cores  threads  comm  numa  gpu  path  nic\n"
              "0     r1    0      -      -        -     -     -    -     -\n"
              "1     r1    1      -      -        -     -     -    -     -\n"
              "2     r1    2      -      -        -     -     -    -     -\n"
              "3     r1    3      -      -        -     -     -    -     -\n"
              "4     r2    0      -      -        -     -     -    -     -\n"
              "5     r2    1      -      -        -     -     -    -     -\n");
}

TEST(Map, TakesTurnsByNodeWhileThereAreSlots) {
    EXPECT_THAT(places_of(plan_of("r1:4,r2:2", 0, nullptr, MapBy::node)),
                ElementsAre("r1.0", "r2.0", "r1.1", "r2.1", "r1.2", "r1.3"));
    EXPECT_THAT(places_of(plan_of("r1:4,r2:2", 3, nullptr)), ElementsAre("r1.0", "r1.1", "r1.2"));
}

TEST(Map, ReadsHostsAsMpirunDoes) {
    EXPECT_THAT(parse_hosts("a,b:2,a:3"), ElementsAre(HostSlots{"a", 4}, HostSlots{"b", 2}));
    for (const auto* wrong : {"", "a:0", "a:x", ":3", "a,,b", "a,", "a:-1", "a b", "a:99999999"})
        EXPECT_EQ(caught_code([&] { parse_hosts(wrong); }), "E607") << wrong;
}

TEST(Map, RefusesMoreRanksThanSlots) {
    EXPECT_THAT(
        caught_text([] { plan_of("r1:4,r2:2", 7, nullptr); }),
        AllOf(HasSubstr("E607: 7 ranks for 6 slots on 2 host(s)"), HasSubstr("fix: -np 6")));
}

TEST(Map, PlansEveryHostLikeTheTopology) {
    const auto node = node_of("dgx");
    const auto plan = plan_of("dgx:8,other:8", 16, &node);
    EXPECT_EQ(plan.seats[9].cpus, plan.seats[1].cpus);
    EXPECT_EQ(plan.seats[9].gpu, plan.seats[1].gpu);
    EXPECT_THAT(plan.seats[1].gpu_uuid, Not(IsEmpty()));
    EXPECT_THAT(plan.seats[9].gpu_uuid, IsEmpty()) << "another node's UUIDs are not known";
    EXPECT_THAT(placement_table(plan), HasSubstr("2 nodes | 16 ranks x 13 threads\n"));
    EXPECT_THAT(placement_table(plan),
                HasSubstr("\n9     other  1      14-27   13       27    0     0000:38:00.0"));
}

TEST(Map, WritesARankfileWithTheKernelsNumbers) {
    const std::string how =
        "# CPUs by the kernel's numbers: mpirun --mca rmaps_rank_file_physical 1 --rankfile FILE\n";
    const auto node = node_of("two-socket");
    EXPECT_EQ(rankfile_text(plan_of("cpu:2", 2, &node)),
              how + "rank 0=cpu slot=0-23\nrank 1=cpu slot=24-47\n");
    auto odd = node;  // sockets that take turns: core 1 of the first is CPU 2
    odd.cpus = odd.allowed_cpus = {0, 1, 2, 3};
    odd.cores = {{0}, {1}, {2}, {3}};
    odd.sockets = odd.l3_groups = {{0, 2}, {1, 3}};
    odd.numa_nodes = {{0, {0, 2}}, {1, {1, 3}}};
    const auto plan = plan_of("cpu:2", 2, &odd);
    EXPECT_THAT(plan.seats[1].cpus, ElementsAre(1, 3));
    EXPECT_EQ(rankfile_text(plan), how + "rank 0=cpu slot=0,2\nrank 1=cpu slot=1,3\n");
}

TEST(Map, WritesMpirunLines) {
    const auto node = node_of("dgx");
    EXPECT_EQ(
        mpirun_text(plan_of("a:8,b:8", 16, &node), &node),
        "mpirun -np 16 --host a:8,b:8 --map-by ppr:8:node:PE=14 --bind-to core lockstep train "
        "--threads 13 ...\n");
    const auto sockets = node_of("two-socket");
    EXPECT_THAT(mpirun_text(plan_of("a:10", 10, &sockets), &sockets),
                HasSubstr("--map-by ppr:5:socket:PE=4 --bind-to core"));
    const auto odd = node_of("odd-numa");
    EXPECT_THAT(mpirun_text(plan_of("a:4", 4, &odd), &odd),
                AllOf(HasSubstr("# No --map-by gives these cores"),
                      HasSubstr("--mca rmaps_rank_file_physical 1 --rankfile ranks")));
    EXPECT_EQ(mpirun_text(plan_of("r1:4,r2:2", 6, nullptr), nullptr),
              "mpirun -np 6 --host r1:4,r2:2 --map-by slot lockstep train ...\n");
}

TEST(Map, WritesSrunAndSbatch) {
    const auto node = node_of("cpu16");
    EXPECT_EQ(srun_text(plan_of("a:2,b:2", 4, &node)),
              "srun --mpi=pmix --nodes=2 --ntasks-per-node=2 --whole --distribution=block "
              "--cpu-bind=mask_cpu:0xff,0xff00 lockstep train --threads 8 ...\n");
    const auto dgx = node_of("dgx");
    EXPECT_THAT(sbatch_text(plan_of("a:8,b:8", 16, &dgx, MapBy::node)),
                AllOf(HasSubstr("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"),
                      HasSubstr("#SBATCH --cpus-per-task=14\n"),
                      HasSubstr("#SBATCH --gpus-per-node=8\n"),
                      HasSubstr("--distribution=cyclic"),
                      HasSubstr("mask_cpu:0x3fff,0xfffc000,")));
}

TEST(Map, RefusesFormsThatCannotSayThePlan) {
    const auto node = node_of("cpu16");
    EXPECT_THAT(caught_text([&] { srun_text(plan_of("a:4,b:2", 6, &node)); }),
                AllOf(HasSubstr("E645"), HasSubstr("--format rankfile")));
    EXPECT_EQ(caught_code([&] { sbatch_text(plan_of("a:4", 4, nullptr)); }), "E645");
    EXPECT_EQ(caught_code([&] { rankfile_text(plan_of("a:4", 4, nullptr)); }), "E645");
}

TEST(Map, FindsNoDifferenceWhereThereIsNone) {
    const auto node = node_of("dgx");
    const auto plan = plan_of("dgx:8", 8, &node);
    auto reality = plan.seats;
    reality[3].cpus.pop_back();
    EXPECT_THAT(differences(plan, reality), IsEmpty())
        << "fewer cores than planned are planned cores";
    EXPECT_NO_THROW(check_against_plan(plan, reality));
}

TEST(Map, NamesEachDifference) {
    const auto node = node_of("dgx");
    const auto plan = plan_of("dgx:8", 8, &node);
    auto reality = plan.seats;
    std::swap(reality[0].gpu, reality[1].gpu);
    reality[2].cpus = {0, 1};
    reality[3].host = "elsewhere";
    reality[4].gpu_uuid = "GPU-new";
    const auto lines = differences(plan, reality);
    EXPECT_THAT(lines, Contains("rank 0: GPU 0000:18:00.0 is planned, 0000:38:00.0 is found"));
    EXPECT_THAT(lines, Contains("rank 2: cores 28-41 are planned, 0-1 are found"));
    EXPECT_THAT(lines, Contains("rank 3: host dgx is planned, elsewhere is found"));
    EXPECT_THAT(lines, Contains(HasSubstr("rank 4: GPU GPU-00000000")));
    EXPECT_THAT(caught_text([&] { check_against_plan(plan, reality); }),
                AllOf(HasSubstr("E644: the job does not run as planned: rank 0: GPU"),
                      HasSubstr("lockstep map --format mpirun")));
    reality.pop_back();
    EXPECT_THAT(differences(plan, reality), ElementsAre("8 ranks are planned, 7 are found"));
}

TEST(Map, ComparesNodesOfUnknownNamesByWhoSharesThem) {
    auto plan = plan_of("node0:2,node1:2", 4, nullptr);
    plan.names_hosts = false;
    auto reality = plan_of("n7:2,n9:2", 4, nullptr).seats;
    for (auto& seat : reality) seat.host_id = seat.host;
    EXPECT_THAT(differences(plan, reality), IsEmpty());
    reality[1].host = reality[1].host_id = "n9";
    EXPECT_THAT(differences(plan, reality), Contains(HasSubstr("rank 1: it is on n9")));
}

RankRow row_of(int rank, std::vector<int> cpus) {
    return {.rank = rank,
            .host = "node-a",
            .host_id = "boot/node-a",
            .cpus = std::move(cpus),
            .instruction_set = InstructionSet::avx2,
            .memory_bytes = 8ull << 30};
}

TEST(RankRow, IsMadeOfTheNodesFacts) {
    NodeFacts node;
    node.host = "node-a";
    node.boot_id = "boot";
    node.allowed_cpus = {0, 1};
    node.instruction_set = InstructionSet::avx512;
    node.memory_bytes = 100;
    node.control_group.memory_limit_bytes = 60;
    const auto row = make_rank_row(node, 3);
    EXPECT_EQ(row.rank, 3);
    EXPECT_EQ(row.host_id, "boot/node-a");
    EXPECT_EQ(row.instruction_set, InstructionSet::avx512);
    EXPECT_EQ(row.memory_bytes, 60u);
    EXPECT_TRUE(row.memory_is_limited);
}

TEST(RankRow, ComesBackFromItsText) {
    auto row = row_of(3, {0, 1, 2, 8});
    row.memory_is_limited = true;
    const auto text = serialize(row);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_EQ(deserialize<RankRow>(text, "rank row"), row);
    EXPECT_EQ(deserialize<RankRow>(serialize(RankRow{}), "rank row"), RankRow{});
}

TEST(RankRow, RefusesDamagedText) {
    const auto good = serialize(row_of(0, {0}));
    const auto code_of = [](const std::string& text) {
        return caught_code([&] { deserialize<RankRow>(text, "rank row"); });
    };
    EXPECT_EQ(code_of("{"), "E222");
    EXPECT_EQ(code_of(R"({"rang": 1})"), "E222");
    auto text = good;
    text.replace(text.find(R"("cpus":"0")"), 10, R"("cpus":"z")");
    EXPECT_EQ(code_of(text), "E222");
    text = good;
    text.replace(text.find(R"("rank":0)"), 8, R"("rank":"")");
    EXPECT_EQ(code_of(text), "E222");
}

TEST(CpuShare, IsAllOfARanksOwnCores) {
    const std::vector rows = {row_of(0, {0, 1}), row_of(1, {2, 3, 4})};
    EXPECT_EQ(cpu_share(rows, 0), (CpuShare{2, 1}));
    EXPECT_EQ(cpu_share(rows, 1), (CpuShare{3, 4}));
}

TEST(CpuShare, DividesCoresAmongRanksThatOverlap) {
    const std::vector rows = {row_of(0, {0, 1, 2}), row_of(1, {2, 3, 4}), row_of(2, {8})};
    EXPECT_EQ(cpu_share(rows, 0), (CpuShare{1, std::nullopt}));
    EXPECT_EQ(cpu_share(rows, 1), (CpuShare{1, std::nullopt}));
    EXPECT_EQ(cpu_share(rows, 2), (CpuShare{1, 8}));
    EXPECT_EQ(ranks_sharing_cpus(rows, 0), 2);
    EXPECT_EQ(ranks_sharing_cpus(rows, 2), 1);
    EXPECT_EQ(ranks_sharing_cpus(rows, 3), 0);
}

TEST(CpuShare, DoesNotMixNodes) {
    std::vector rows = {row_of(0, {0, 1}), row_of(1, {0, 1})};
    rows[1].host_id = "boot/node-b";
    EXPECT_EQ(ranks_sharing_cpus(rows, 0), 1);
    EXPECT_EQ(cpu_share(rows, 0), (CpuShare{2, 1}));
}

std::vector<std::string> warnings(const std::vector<RankRow>& rows,
                                  InstructionSet most = InstructionSet::amx) {
    return hardware_warnings(rows, most);
}

TEST(HardwareWarnings, AreNoneWhereAllIsWell) {
    EXPECT_THAT(warnings({row_of(0, {0}), row_of(1, {1})}), IsEmpty());
    EXPECT_THAT(warnings({}), IsEmpty());
}

TEST(HardwareWarnings, TellOfLittleMemory) {
    std::vector rows{row_of(0, {0}), row_of(1, {1})};
    for (auto& row : rows) {
        row.memory_bytes = 300u << 20;
        row.memory_is_limited = true;
    }
    EXPECT_THAT(warnings(rows),
                ElementsAre("ranks 0-1 of node-a share 300 MiB of memory, the limit of their "
                            "control group, 150 MiB each: even a small model may take 256 MiB; "
                            "fix: ask for more memory (sbatch --mem), or start fewer ranks"));
}

TEST(HardwareWarnings, TellOfMixedProcessors) {
    auto other = row_of(1, {1});
    other.instruction_set = InstructionSet::avx512;
    std::vector rows{row_of(0, {0}), other};
    EXPECT_THAT(warnings(rows),
                ElementsAre(HasSubstr("processors differ (avx2 on rank 0, avx512 on rank 1)")));
    EXPECT_THAT(warnings(rows, InstructionSet::avx2), IsEmpty());
    rows[0].instruction_set = InstructionSet::avx512;
    rows[1].instruction_set = InstructionSet::amx;
    EXPECT_THAT(warnings(rows, InstructionSet::avx512), IsEmpty());
    EXPECT_THAT(warnings(rows), ElementsAre(HasSubstr("(avx512 on rank 0, amx on rank 1)")));
}

RankRow rank_on(const std::string& node, int rank, std::vector<int> cpus) {
    return {.rank = rank, .host = node, .host_id = node, .cpus = std::move(cpus)};
}

TEST(CoreShare, HasEachCoreOfANodeOnce) {
    const std::vector rows = {rank_on("n1", 0, {0, 1}),
                              rank_on("n1", 1, {0, 1}),
                              rank_on("n1", 2, {1, 2}),
                              rank_on("n2", 3, {0, 1, 2, 3})};
    double on_n1 = 0;
    for (const int rank : {0, 1, 2}) on_n1 += core_share(rows, rank, {});
    EXPECT_DOUBLE_EQ(on_n1, 3);
    EXPECT_DOUBLE_EQ(core_share(rows, 0, {}), 0.5 + 1.0 / 3);
    EXPECT_DOUBLE_EQ(core_share(rows, 3, {}), 4);
}

TEST(CoreShare, IsNoMoreThanAQuotaAllows) {
    const std::vector rows = {rank_on("n1", 0, {0, 1}), rank_on("n1", 1, {2, 3})};
    EXPECT_DOUBLE_EQ(core_share(rows, 0, {.cpu_quota = 1.5}), 0.75);
    EXPECT_DOUBLE_EQ(core_share(rows, 0, {.cpu_quota = 64}), 2);
}

UsableMemory limit_of(std::uint64_t group_bytes, std::map<std::string, std::string> variables) {
    NodeFacts node{.memory_bytes = std::uint64_t{64} << 30};
    if (group_bytes > 0) node.control_group.memory_limit_bytes = group_bytes;
    return memory_limit(node, Environment(std::move(variables)));
}

TEST(MemoryLimitOfAJob, IsTheSmallestThatSomebodySet) {
    EXPECT_EQ(limit_of(0, {}).set_by, "node");
    EXPECT_EQ(limit_of(0, {}).bytes, std::uint64_t{64} << 30);
    EXPECT_EQ(limit_of(1 << 30, {}).set_by, "control group");
    EXPECT_EQ(limit_of(1 << 30, {{"SLURM_MEM_PER_NODE", "2048"}}).set_by, "control group");
    EXPECT_EQ(limit_of(1 << 30, {{"SLURM_MEM_PER_NODE", "512"}}).set_by, "SLURM");
    EXPECT_EQ(limit_of(0, {{"SLURM_MEM_PER_CPU", "512"}, {"SLURM_CPUS_ON_NODE", "4"}}).bytes,
              std::uint64_t{2} << 30);
    EXPECT_EQ(limit_of(0, {{"SLURM_MEM_PER_NODE", "lots"}}).set_by, "node");
    EXPECT_EQ(limit_of(0, {{"SLURM_MEM_PER_NODE", "0"}}).set_by, "node");
}

}  // namespace
}  // namespace lockstep
