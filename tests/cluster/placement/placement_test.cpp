// SPDX-License-Identifier: Apache-2.0
#include "placement/choices.hpp"
#include "placement_cases.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <numeric>

#include <rapidcheck/gtest.h>

namespace lockstep::test {
namespace {

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
    EXPECT_EQ(deserialize<RankSeat>(serialize(placement.seats[7]), "seat"), placement.seats[7]);
    const LaunchedRank rank{4, 1, {2, 3}, {{"GPU-1"}}, {2, 3, 4}, true};
    EXPECT_EQ(deserialize<LaunchedRank>(serialize(rank), "rank"), rank);
    placement.seats[2].rank = 7;
    EXPECT_THAT(caught_text([&] { deserialize_placement(serialize(placement), "p.json"); }),
                HasSubstr("E222: 'p.json': seat 2 is of rank 7"));
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

}  // namespace
}  // namespace lockstep::test
