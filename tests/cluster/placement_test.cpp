// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/placement.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/cluster/early_binding.hpp"
#include "lockstep/cluster/path_class.hpp"

#include "placement/matching.hpp"
#include "support/caught.hpp"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using test::caught_code;
using test::caught_text;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

NodeTopology node_of(const std::string& name) {
    return load_topology(std::filesystem::path(LOCKSTEP_TOPOLOGIES) / (name + ".json"));
}

/// `count` ranks that a launcher left unbound.
std::vector<LaunchedRank> unbound(const NodeTopology& node, int count) {
    std::vector<LaunchedRank> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back({i, i, node.allowed_cpus, {}});
    return ranks;
}

std::vector<LaunchedRank> bound(const std::vector<std::string>& cpus) {
    std::vector<LaunchedRank> ranks;
    for (const auto& list : cpus) {
        const int rank = static_cast<int>(ranks.size());
        ranks.push_back({rank, rank, *parse_cpu_list(list), {}});
    }
    return ranks;
}

Placement place(const std::string& name, int ranks, const PlacementRules& rules = {}) {
    const auto node = node_of(name);
    return place_on_node(node, unbound(node, ranks), rules);
}

std::vector<std::string> cores_of(const Placement& placement) {
    std::vector<std::string> cores;
    for (const auto& seat : placement.seats) cores.push_back(cpu_list_text(seat.cpus));
    return cores;
}

/// "GPU address, path class, port" for each seat.
std::vector<std::string> devices_of(const Placement& placement) {
    std::vector<std::string> devices;
    for (const auto& seat : placement.seats)
        devices.push_back(seat.gpu + " " + seat.nic_path + " " + seat.nic);
    return devices;
}

TEST(PathClass, HasNvidiasWords) {
    const auto node = node_of("dgx");
    const auto name = [&](const std::string& a, const std::string& b) {
        PciPlace left, right;
        left.path = a;
        right.path = b;
        left.numa_node = 0;
        right.numa_node = a[3] == b[3] ? 0 : 1;
        return path_class_name(path_between(node, left, right));
    };
    const std::string port = "pci0:16/16:01.0/", upstream = port + "17:00.0/";
    EXPECT_EQ(name(port + "17:00.0", port + "17:00.1"), "PIX") << "functions of one card";
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", upstream + "18:04.0/1a:00.0"), "PIX");
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", upstream + "18:04.0/20:00.0/21:00.0/22:00.0"),
              "PXB");
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", "pci0:16/16:02.0/30:00.0"), "PHB");
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", "pci0:40/40:02.0/41:00.0"), "NODE");
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", "pci8:40/40:02.0/41:00.0"), "SYS");
    EXPECT_EQ(path_class_name(path_between(node, node.gpus[0], node.gpus[7])), "NV18");
}

TEST(PathClass, IsUnknownWhereFirmwareNamesNoNumaNode) {
    auto node = node_of("dgx");
    PciPlace left, right;
    left.path = "pci0:16/16:01.0";
    right.path = "pci0:40/40:01.0";
    EXPECT_EQ(path_class_name(path_between(node, left, right)), "-");
    node.numa_nodes.resize(1);
    EXPECT_EQ(path_class_name(path_between(node, left, right)), "NODE");
}

TEST(Matching, KeepsOrderAmongEquals) {
    EXPECT_THAT(cheapest_pairs({{1, 1, 1}, {1, 1, 1}}), ElementsAre(0, 1));
    EXPECT_THAT(cheapest_pairs({{5, 0}, {0, 5}}), ElementsAre(1, 0));
    EXPECT_THAT(cheapest_pairs({}), IsEmpty());
}

TEST(Matching, GoesRowByRowWhereThereAreMany) {
    std::vector<std::vector<std::int64_t>> costs(17, std::vector<std::int64_t>(17, 3));
    costs[0][16] = 0;
    const auto pairs = cheapest_pairs(costs);
    EXPECT_EQ(pairs[0], 16);
    EXPECT_EQ(pairs[1], 1) << "its own number, of equal ones";
    EXPECT_EQ(pairs[16], 0) << "what is left";
}

RC_GTEST_PROP(Matching, IsTheCheapestOfAllPermutations, ()) {
    const auto size = *rc::gen::inRange<std::size_t>(1, 6);
    std::vector<std::vector<std::int64_t>> costs;
    for (std::size_t row = 0; row < size; ++row)
        costs.push_back(*rc::gen::container<std::vector<std::int64_t>>(
            size, rc::gen::inRange<std::int64_t>(0, 50)));
    const auto total = [&](const std::vector<int>& columns) {
        std::int64_t sum = 0;
        for (std::size_t row = 0; row < size; ++row)
            sum += costs[row][static_cast<std::size_t>(columns[row])];
        return sum;
    };
    std::vector<int> columns(size);
    std::iota(columns.begin(), columns.end(), 0);
    auto best = total(columns);
    while (std::ranges::next_permutation(columns).found) best = std::min(best, total(columns));
    RC_ASSERT(total(cheapest_pairs(costs)) == best);
}

TEST(Placement, OfADgxGivesEachRankItsGpuCardAndCores) {
    const auto placement = place("dgx", 8);
    EXPECT_THAT(
        cores_of(placement),
        ElementsAre("0-13", "14-27", "28-41", "42-55", "56-69", "70-83", "84-97", "98-111"));
    EXPECT_THAT(devices_of(placement),
                ElementsAre("0000:18:00.0 PIX mlx5_0:1",
                            "0000:38:00.0 PIX mlx5_1:1",
                            "0000:58:00.0 PIX mlx5_2:1",
                            "0000:78:00.0 PIX mlx5_3:1",
                            "0000:98:00.0 PIX mlx5_4:1",
                            "0000:b8:00.0 PIX mlx5_5:1",
                            "0000:d8:00.0 PIX mlx5_6:1",
                            "0000:f8:00.0 PIX mlx5_7:1"));
    EXPECT_EQ(placement.seats[4].comm_cpu, 69);
    EXPECT_EQ(placement.seats[4].threads, 13);
    EXPECT_THAT(placement.seats[4].numa_nodes, ElementsAre(1));
    EXPECT_THAT(placement.warnings, IsEmpty());
}

TEST(Placement, FollowsGpusToOddNumaNodesAndLeavesTheDisplayAlone) {
    const auto placement = place("odd-numa", 4);
    EXPECT_THAT(cores_of(placement), ElementsAre("24-31", "8-15", "56-63", "40-47"));
    EXPECT_THAT(devices_of(placement),
                ElementsAre("0000:21:00.0 PHB mlx5_0:1",
                            "0000:41:00.0 SYS mlx5_1:1",
                            "0000:61:00.0 PHB mlx5_1:1",
                            "0000:81:00.0 SYS mlx5_0:1"));
    EXPECT_THAT(placement.warnings, ElementsAre(HasSubstr("32 of 64 cores stay idle")));
}

TEST(Placement, TakesGpusNearACardFirst) {
    const auto placement = place("odd-numa", 2);
    EXPECT_EQ(placement.seats[0].gpu, "0000:21:00.0");
    EXPECT_EQ(placement.seats[1].gpu, "0000:61:00.0");
    EXPECT_THAT(placement.warnings,
                Contains(HasSubstr("no rank uses GPU 0000:41:00.0, 0000:81:00.0")));
}

TEST(Placement, OfAWorkstationSplitsByCaches) {
    const auto placement = place("workstation", 4);
    EXPECT_THAT(cores_of(placement), ElementsAre("0-7", "8-15", "16-23", "24-31"));
    EXPECT_THAT(devices_of(placement), Contains("0000:43:00.0  "));
    const auto three = place("workstation", 3, {.comm_core = CommCore::none});
    EXPECT_THAT(cores_of(three), ElementsAre("0-9", "10-19", "20-29")) << "a cache is 8 cores";
}

TEST(Placement, ManagesWithoutNumaFacts) {
    const auto placement = place("cloud-vm", 4);
    EXPECT_THAT(cores_of(placement), ElementsAre("0-3", "4-7", "8-11", "12-15"));
    EXPECT_EQ(placement.seats[3].gpu, "0000:00:1e.0");
}

TEST(Placement, CountsMigInstancesAsDevices) {
    const auto placement = place("mig", 4);
    EXPECT_EQ(placement.seats[0].gpu_uuid, "MIG-44444444-0000-0000-0000-000000000000");
    EXPECT_EQ(placement.seats[2].gpu_uuid, "MIG-44444444-0000-0000-0000-000000000002");
    EXPECT_EQ(placement.seats[3].gpu, "0000:ca:00.0");
    EXPECT_EQ(caught_code([] { place("mig", 5); }), "E608");
}

TEST(Placement, KeepsWhatAControlGroupGivesATask) {
    const auto node = node_of("isolated");
    const auto placement =
        place_on_node(node, std::vector{LaunchedRank{3, 0, node.allowed_cpus, {}}}, {});
    EXPECT_THAT(cores_of(placement), ElementsAre("16-23"));
    EXPECT_THAT(devices_of(placement), ElementsAre("0000:81:00.0 NODE mlx5_0:1"));
}

TEST(Placement, JoinsWhatIsolatedRanksSee) {
    auto one = node_of("isolated"), two = one;
    for (auto& gpu : two.gpus) gpu.has_driver = gpu.pci.address == "0000:01:00.0";
    two.gpus[0].uuid = "GPU-other";
    const auto node = merge_views(std::vector{one, two});
    EXPECT_THAT(usable_gpus(node), SizeIs(2));
    auto ranks = bound({"16-23", "0-7"});
    ranks[0].gpus = {{"0000:81:00.0"}};
    ranks[1].gpus = {{"0000:01:00.0"}};
    const auto placement = place_on_node(node, ranks, {});
    EXPECT_EQ(placement.seats[0].gpu, "0000:81:00.0");
    EXPECT_EQ(placement.seats[1].gpu_uuid, "GPU-other");
}

TEST(Placement, OfTwoSocketsUsesNoSiblings) {
    const auto placement = place("two-socket", 4);
    EXPECT_THAT(cores_of(placement), ElementsAre("0-11", "12-23", "24-35", "36-47"));
    EXPECT_THAT(devices_of(placement),
                ElementsAre(" NODE hfi1_0:1", " NODE hfi1_0:1", " SYS hfi1_0:1", " SYS hfi1_0:1"));
    EXPECT_EQ(placement.seats[0].threads, 12) << "nothing is kept free where there are no GPUs";
    const auto siblings = place("two-socket", 4, {.siblings = SiblingUse::all_threads});
    EXPECT_EQ(cores_of(siblings)[0], "0-11,48-59");
    EXPECT_EQ(siblings.seats[0].threads, 24);
    EXPECT_THAT(cores_of(place("two-socket", 3, {.threads = 4})),
                ElementsAre("0-3", "4-7", "24-27"))
        << "spread over sockets, packed inside";
}

TEST(Placement, DividesSixteenCoresAsTheBookDoes) {
    for (const auto& [ranks, threads] : {std::pair(2, 8), {4, 4}, {8, 2}}) {
        const auto placement = place("cpu16", ranks);
        for (const auto& seat : placement.seats) EXPECT_EQ(seat.threads, threads);
        EXPECT_EQ(placement.seats.back().cpus.back(), 15);
        EXPECT_THAT(placement.warnings, IsEmpty());
    }
}

TEST(Placement, GivesEveryRankTheSameNumberOfCores) {
    const auto placement = place("cpu16", 3);
    EXPECT_THAT(cores_of(placement), ElementsAre("0-4", "5-9", "10-14"));
    EXPECT_THAT(placement.warnings, ElementsAre(HasSubstr("1 of 16 cores stay idle")));
    EXPECT_THAT(cores_of(place("cpu16", 4, {.threads = 2})),
                ElementsAre("0-1", "2-3", "4-5", "6-7"));
}

RC_GTEST_PROP(Placement, SharesNoCoreAndCrossesNoSocketInVain, ()) {
    const int ranks = *rc::gen::inRange(1, 49);
    const auto placement = place("two-socket", ranks);
    std::vector<int> used;
    for (const auto& seat : placement.seats) {
        used.insert(used.end(), seat.cpus.begin(), seat.cpus.end());
        RC_ASSERT(seat.cpus.size() == placement.seats[0].cpus.size());
        if (ranks % 2 == 0) RC_ASSERT(seat.numa_nodes.size() == 1u);
    }
    std::ranges::sort(used);
    RC_ASSERT(std::ranges::adjacent_find(used) == used.end());
    RC_ASSERT(place("two-socket", ranks) == placement);
}

TEST(Placement, KeepsTheLaunchersCoresAndFindsTheGpusNearThem) {
    const auto placement = place_on_node(node_of("dgx"), bound({"56-63", "0-7"}), {});
    EXPECT_THAT(cores_of(placement), ElementsAre("56-63", "0-7"));
    EXPECT_EQ(placement.seats[0].gpu, "0000:98:00.0");
    EXPECT_EQ(placement.seats[1].gpu, "0000:18:00.0");
    EXPECT_TRUE(placement.seats[0].is_bound);
}

TEST(Placement, WarnsOfCoresFarFromTheGpu) {
    auto ranks = bound({"0-7", "8-15"});
    ranks[1].gpus = {{"0000:f8:00.0"}};
    const auto placement = place_on_node(node_of("dgx"), ranks, {});
    EXPECT_THAT(placement.warnings,
                Contains(AllOf(HasSubstr("rank 1 is bound to cores 8-15, far from its GPU 0000:f8"),
                               HasSubstr("fix: cores among 56-111"))));
}

TEST(Placement, RefusesMoreRanksThanGpus) {
    const auto text = caught_text([] { place("workstation", 5); });
    EXPECT_THAT(text, HasSubstr("E608: 5 ranks on ws for 4 GPU(s): ranks 0 and 4 would share GPU"));
    EXPECT_THAT(text, HasSubstr("mpirun --map-by ppr:4:node, or srun --ntasks-per-node=4"));
    const auto shared = place("workstation", 5, {.gpus = SharingRule::allow});
    EXPECT_EQ(shared.seats[4].gpu, shared.seats[0].gpu);
}

TEST(Placement, RefusesTwoRanksThatSeeTheSameGpuOnly) {
    const auto node = node_of("workstation");
    auto ranks = unbound(node, 2);
    ranks[0].gpus = ranks[1].gpus = {{node.gpus[1].uuid}};
    EXPECT_THAT(caught_text([&] { place_on_node(node, ranks, {}); }),
                AllOf(HasSubstr("E608"), HasSubstr("which other ranks need, too")));
    ranks[1].gpus = {{node.gpus[0].uuid}};
    EXPECT_EQ(place_on_node(node, ranks, {}).seats[0].gpu, node.gpus[1].pci.address);
}

TEST(Placement, RefusesOverlappingCoresWithBothRanksAndTheRightLine) {
    const auto text = caught_text([] {
        place_on_node(node_of("cpu16"), bound({"0-3", "3-6"}), {});
    });
    EXPECT_THAT(text, HasSubstr("E609: ranks 0 and 1 share core 3 of cpu16 (cores 0-3 and 3-6)"));
    EXPECT_THAT(text,
                HasSubstr("mpirun --bind-to core --map-by slot:PE=8, or srun --cpus-per-task=8"));
}

TEST(Placement, RefusesTwoRanksOnOneCoreOfTwo) {
    const auto node = node_of("two-core-vm");
    const auto ranks = bound({"0", "0"});
    EXPECT_THAT(caught_text([&] { place_on_node(node, ranks, {}); }),
                HasSubstr("E609: ranks 0 and 1 share core 0 of vm2"));
    const auto allowed = place_on_node(node, ranks, {.cores = SharingRule::allow});
    EXPECT_THAT(allowed.warnings, Contains(HasSubstr("2 ranks on cores 0, which they share")));
    EXPECT_THAT(cores_of(place("two-core-vm", 2)), ElementsAre("0", "1"));
}

TEST(Placement, RefusesMoreRanksThanCores) {
    EXPECT_THAT(
        caught_text([] { place("two-core-vm", 3); }),
        AllOf(HasSubstr("E643: 3 ranks on vm2, which has 2 core(s)"), HasSubstr("ppr:2:node")));
    EXPECT_THAT(place("two-core-vm", 3, {.cores = SharingRule::allow}).seats, SizeIs(3));
}

TEST(Placement, LeavesPortsThatAreDownAndOtherFabricsAlone) {
    auto node = node_of("dgx");
    node.rdma_ports[0].state = "DOWN";
    const auto placement = place_on_node(node, unbound(node, 8), {});
    EXPECT_EQ(placement.seats[0].nic, "mlx5_1:1");
    EXPECT_EQ(placement.seats[0].nic_path, "NODE");
    for (const auto& seat : placement.seats) EXPECT_NE(seat.nic, "mlx5_8:1");
}

TEST(Placement, ComesBackFromJson) {
    auto placement = place("dgx", 8);
    placement.warnings.push_back("w");
    EXPECT_EQ(deserialize_placement(serialize(placement)), placement);
    EXPECT_EQ(deserialize_seat(serialize(placement.seats[7])), placement.seats[7]);
    const LaunchedRank rank{4, 1, {2, 3}, {{"GPU-1"}}};
    EXPECT_EQ(deserialize_launched_rank(serialize(rank)), rank);
    placement.seats[2].rank = 7;
    EXPECT_THAT(caught_text([&] { deserialize_placement(serialize(placement), "p.json"); }),
                HasSubstr("E222: 'p.json': seat 2 is of rank 7"));
}

TEST(VisibleGpus, FollowCuda) {
    const auto visible = [](const std::string& name, std::map<std::string, std::string> variables) {
        return visible_gpus(node_of(name), Environment(std::move(variables)));
    };
    const auto list = [](const char* text) {
        return std::map<std::string, std::string>{{"CUDA_VISIBLE_DEVICES", text}};
    };
    EXPECT_EQ(visible("dgx", {}), std::nullopt);
    EXPECT_THAT(*visible("dgx", list("")), IsEmpty());
    EXPECT_THAT(*visible("cpu16", list("0")), IsEmpty());
    const std::string uuid = "GPU-00000000-0000-0000-0000-00000000000";
    EXPECT_THAT(*visible("dgx", list("3,1")), ElementsAre(uuid + "3", uuid + "1"));
    EXPECT_THAT(*visible("dgx", list("0,-1,2")), ElementsAre(uuid + "0"));
    EXPECT_THAT(*visible("mig", list("MIG-44444444-0000-0000-0000-000000000001")), SizeIs(1));
    for (const auto* wrong : {"8", "GPU-9", "GPU-0", "x"})
        EXPECT_EQ(caught_code([&] { visible("dgx", list(wrong)); }), "E648") << wrong;
    EXPECT_THAT(
        caught_text([&] { visible("mig", list("MIG-44444444-0000-0000-0000-000000000001,1")); }),
        HasSubstr("either GPUs or MIG instances"));
}

TEST(VisibleGpus, RefuseIndicesWhereCudaOrdersBySpeed) {
    auto node = node_of("dgx");
    node.gpus[0].model = "slow";
    std::map<std::string, std::string> variables{{"CUDA_VISIBLE_DEVICES", "0"}};
    EXPECT_EQ(caught_code([&] { visible_gpus(node, Environment(variables)); }), "E648");
    variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
    EXPECT_THAT(*visible_gpus(node, Environment(variables)), SizeIs(1));
}

EarlyBinding early(const NodeTopology& node,
                   int local_rank,
                   const std::map<std::string, std::string>& more = {}) {
    std::map<std::string, std::string> variables{
        {"OMPI_COMM_WORLD_RANK", std::to_string(local_rank)},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
    variables.insert(more.begin(), more.end());
    const Environment environment(variables);
    return early_binding(node, read_launch_facts(environment), environment);
}

TEST(EarlyBinding, GivesUnboundRanksTheirShareAndOpenMpItsPlaces) {
    const auto binding = early(node_of("cpu16"), 1);
    EXPECT_THAT(binding.cpus, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
    EXPECT_EQ(binding.variables.at("LOCKSTEP_BOUND"), "8-15");
    EXPECT_EQ(binding.variables.at("OMP_NUM_THREADS"), "8");
    EXPECT_EQ(binding.variables.at("OMP_PLACES"), "threads");
    EXPECT_EQ(binding.variables.at("OMP_PROC_BIND"), "close");
}

TEST(EarlyBinding, LeavesTheUsersOpenMpSettingsAlone) {
    const auto binding = early(node_of("cpu16"), 0, {{"OMP_PLACES", "sockets"}});
    EXPECT_FALSE(binding.cpus.empty());
    EXPECT_FALSE(binding.variables.contains("OMP_PROC_BIND"));
    for (const auto* name : {"GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
        const auto none = early(node_of("cpu16"), 0, {{name, "0-3"}});
        EXPECT_THAT(none.cpus, IsEmpty());
        EXPECT_THAT(none.why_not, HasSubstr(std::string(name) + " is set"));
    }
    EXPECT_THAT(early(node_of("cpu16"), 0, {{"LOCKSTEP_BOUND", "off"}}).cpus, IsEmpty());
}

TEST(EarlyBinding, KeepsWhatALauncherBoundAndCrowdedNodes) {
    auto node = node_of("cpu16");
    node.allowed_cpus = {0, 1};
    EXPECT_THAT(early(node, 0).cpus, IsEmpty()) << "bound";
    node = node_of("two-core-vm");
    node.cpus = node.allowed_cpus = {0};
    node.cores = {{0}};
    EXPECT_THAT(early(node, 0).cpus, IsEmpty()) << "two ranks, one core";
}

TEST(EarlyBinding, DoesNothingOutsideALaunch) {
    const Environment none(std::map<std::string, std::string>{});
    EXPECT_THAT(early_binding(node_of("cpu16"), read_launch_facts(none), none).cpus, IsEmpty());
}

TEST(Sharing, NamesBothRanksOfAGpu) {
    std::vector<RankSeat> seats(3);
    for (int i = 0; i < 3; ++i) {
        auto& seat = seats[static_cast<std::size_t>(i)];
        seat.rank = i;
        seat.host = seat.host_id = i == 0 ? "a" : "b";
        seat.gpu = "0000:18:00.0";
        seat.gpu_uuid = "GPU-1";
    }
    EXPECT_THAT(caught_text([&] { check_no_sharing(seats, {}); }),
                HasSubstr("E608: ranks 1 and 2 are on one GPU of b: 0000:18:00.0 (GPU-1)"));
    seats[2].host = seats[2].host_id = "c";
    EXPECT_NO_THROW(check_no_sharing(seats, {}));
}

TEST(Witnesses, MustAgree) {
    const std::vector<NodeWitness> good{{0, "a", 0, 0, 0}, {1, "a", 0, 1, 1}, {2, "b", 2, 0, {}}};
    EXPECT_NO_THROW(check_witnesses(good));
    const auto refused = [&](auto&& change) {
        auto witnesses = good;
        change(witnesses);
        return caught_text([&] { check_witnesses(witnesses); });
    };
    EXPECT_THAT(refused([](auto& w) { w[2].host_id = "a"; }), HasSubstr("E646: rank 2"))
        << "two containers of one name";
    EXPECT_THAT(refused([](auto& w) { w[1].host_id = "c"; }), HasSubstr("E646: rank 1"));
    EXPECT_THAT(refused([](auto& w) { w[1].launcher_local_rank = 0; }),
                HasSubstr("local rank 1, the launcher says local rank 0"));
}

}  // namespace
}  // namespace lockstep
