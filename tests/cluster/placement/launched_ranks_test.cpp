// SPDX-License-Identifier: Apache-2.0
#include "placement_cases.hpp"
#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(LaunchedRanks, KeepsTheLaunchersCoresAndFindsTheGpusNearThem) {
    const auto placement = place_on_node(node_of("dgx"), bound({"56-63", "0-7"}), {});
    EXPECT_THAT(cores_of(placement), ElementsAre("56-63", "0-7"));
    EXPECT_EQ(placement.seats[0].gpu, "0000:98:00.0");
    EXPECT_EQ(placement.seats[1].gpu, "0000:18:00.0");
    EXPECT_TRUE(placement.seats[0].is_bound);
}

TEST(LaunchedRanks, WarnsOfCoresFarFromTheGpu) {
    auto ranks = bound({"0-7", "8-15"});
    ranks[1].gpus = {{"0000:f8:00.0"}};
    const auto placement = place_on_node(node_of("dgx"), ranks, {});
    EXPECT_THAT(placement.warnings,
                Contains(AllOf(HasSubstr("rank 1 is bound to cores 8-15, far from its GPU 0000:f8"),
                               HasSubstr("fix: cores among 56-111"))));
}

TEST(LaunchedRanks, RefusesMoreRanksThanGpus) {
    const auto text = caught_text([] { place("workstation", 5); });
    EXPECT_THAT(text, HasSubstr("E608: 5 ranks on ws for 4 GPU(s): ranks 0 and 4 would share GPU"));
    EXPECT_THAT(text, HasSubstr("mpirun --map-by ppr:4:node, or srun --ntasks-per-node=4"));
    const auto shared = place("workstation", 5, {.gpus = SharingRule::allow});
    EXPECT_EQ(shared.seats[4].gpu, shared.seats[0].gpu);
}

TEST(LaunchedRanks, RefusesTwoRanksThatSeeTheSameGpuOnly) {
    const auto node = node_of("workstation");
    auto ranks = unbound(node, 2);
    ranks[0].gpus = ranks[1].gpus = {{node.gpus[1].uuid}};
    EXPECT_THAT(caught_text([&] { place_on_node(node, ranks, {}); }),
                AllOf(HasSubstr("E608"), HasSubstr("which other ranks need, too")));
    ranks[1].gpus = {{node.gpus[0].uuid}};
    EXPECT_EQ(place_on_node(node, ranks, {}).seats[0].gpu, node.gpus[1].pci.address);
}

TEST(LaunchedRanks, RefusesOverlappingCoresWithBothRanksAndTheRightLine) {
    const auto text = caught_text([] {
        place_on_node(node_of("cpu16"), bound({"0-3", "3-6"}), {});
    });
    EXPECT_THAT(text, HasSubstr("E609: ranks 0 and 1 share core 3 of cpu16 (cores 0-3 and 3-6)"));
    EXPECT_THAT(text,
                HasSubstr("mpirun --bind-to core --map-by slot:PE=8, or srun --cpus-per-task=8"));
}

TEST(LaunchedRanks, RefusesTwoRanksOnOneCoreOfTwo) {
    const auto node = node_of("two-core-vm");
    const auto ranks = bound({"0", "0"});
    EXPECT_THAT(caught_text([&] { place_on_node(node, ranks, {}); }),
                HasSubstr("E609: ranks 0 and 1 share core 0 of vm2"));
    const auto allowed = place_on_node(node, ranks, {.cores = SharingRule::allow});
    EXPECT_THAT(allowed.warnings, Contains(HasSubstr("2 ranks on cores 0, which they share")));
    EXPECT_THAT(cores_of(place("two-core-vm", 2)), ElementsAre("0", "1"));
}

/// What `mpirun --map-by socket` and its like do, and what nobody should be stopped for.
TEST(LaunchedRanks, ShareOutASetThatTheLauncherGaveSeveral) {
    const auto ranks = bound({"0-23,48-71", "24-47,72-95", "0-23,48-71", "24-47,72-95"});
    const auto placement = place_on_node(node_of("two-socket"), ranks, {});
    EXPECT_THAT(cores_of(placement), ElementsAre("0-11", "24-35", "12-23", "36-47"));
    EXPECT_THAT(placement.warnings, IsEmpty());
    EXPECT_FALSE(placement.seats[0].is_bound);
}

TEST(LaunchedRanks, RefusesASetThatIsTooSmallForItsRanks) {
    EXPECT_THAT(caught_text([] {
                    place_on_node(node_of("cpu16"),
                                  bound({"0-3", "4", "4"}),
                                  {.cores = SharingRule::unless_needed});
                }),
                AllOf(HasSubstr("E609: ranks 1 and 2 share core 4 of cpu16 (cores 4 and 4)"),
                      HasSubstr("--map-by slot:PE=5")));
}

TEST(LaunchedRanks, MayShareCoresOnlyWhereANodeHasFewerOfThem) {
    const PlacementRules rules{.cores = SharingRule::unless_needed};
    const auto vm = node_of("two-core-vm");
    EXPECT_THAT(place_on_node(vm, unbound(vm, 4), rules).warnings,
                Contains(HasSubstr("vm2: 4 ranks on cores 0-1, which they share; fix: fewer")));
    EXPECT_THAT(place_on_node(vm, bound({"0", "1", "0", "1"}), rules).warnings,
                Contains(HasSubstr("vm2: 2 ranks on cores 0, which they share")));
    EXPECT_THAT(place_on_node(vm, bound({"0", "0-1", "1"}), rules).warnings,
                Contains(HasSubstr("ranks 0 and 1 share core 0 of vm2 (cores 0 and 0-1); fix:")));
    EXPECT_EQ(caught_code([&] { place_on_node(vm, bound({"0", "0"}), rules); }), "E609");
    EXPECT_EQ(caught_code([&] { place_on_node(vm, bound({"0", "0-1"}), rules); }), "E609");
    EXPECT_THAT(place_on_node(vm, bound({"0", "0-1"}), {.cores = SharingRule::allow}).seats,
                SizeIs(2));
}

/// taskset -c 3 mpirun ...: the launcher gives all that it has.
TEST(LaunchedRanks, AreUnboundWhereTheyMayUseWhatTheirLauncherMay) {
    const auto node = node_of("cpu16");
    auto ranks = bound({"3", "3"});
    const PlacementRules rules{.cores = SharingRule::unless_needed};
    EXPECT_EQ(caught_code([&] { place_on_node(node, ranks, rules); }), "E609");
    for (auto& rank : ranks) rank.offered = {3};
    EXPECT_EQ(caught_code([&] { place_on_node(node, ranks, {}); }), "E643");
    EXPECT_THAT(place_on_node(node, ranks, rules).warnings,
                ElementsAre(HasSubstr("2 ranks on cores 3, which they share")));
}

TEST(LaunchedRanks, GetNoGpusWhereTheyComputeOnCpus) {
    const auto node = node_of("workstation");
    const auto placement = place_on_node(node, unbound(node, 5), {.compute_on = ComputeOn::cpus});
    EXPECT_THAT(devices_of(placement), Each(HasSubstr(" ")));
    for (const auto& seat : placement.seats) EXPECT_EQ(seat.gpu + seat.gpu_uuid, "");
    EXPECT_THAT(placement.warnings, ElementsAre(HasSubstr("2 of 32 cores stay idle")));
}

TEST(SeatAsItIs, HasTheCoresThatItsRankMayUse) {
    const auto node = node_of("two-socket");
    auto ranks = bound({"0-23", "24-47"});
    const auto planned = place_on_node(node, ranks, {}).seats[1];
    const auto bound_seat = seat_as_it_is(node, ranks[1], planned);
    EXPECT_EQ(bound_seat, planned) << "kept";
    ranks[1].binds_itself = true;
    EXPECT_FALSE(seat_as_it_is(node, ranks[1], planned).is_bound);
    ranks[1] = unbound(node, 2)[1];
    const auto free_seat = seat_as_it_is(node, ranks[1], planned);
    EXPECT_EQ(free_seat.cpus, node.allowed_cpus);
    EXPECT_THAT(free_seat.numa_nodes, ElementsAre(0, 1));
    EXPECT_FALSE(free_seat.is_bound);
    EXPECT_EQ(free_seat.rank, 1);
}

TEST(LauncherCpus, AreThoseOfTheMpirunAbove) {
    const TempDir root;
    root.file("proc/self/status", "Name:\tlockstep\nPPid:\t77\n");
    EXPECT_THAT(launcher_cpus(root.path()), IsEmpty());
    root.file("proc/77/comm", "orted\n");
    root.file("proc/77/status", "Name:\torted\nCpus_allowed_list:\t2-3,8\n");
    EXPECT_THAT(launcher_cpus(root.path()), ElementsAre(2, 3, 8));
    root.file("proc/77/comm", "bash\n");
    EXPECT_THAT(launcher_cpus(root.path()), IsEmpty()) << "a shell's cores are nobody's choice";
}

TEST(LaunchedRanks, RefusesMoreRanksThanCores) {
    EXPECT_THAT(
        caught_text([] { place("two-core-vm", 3); }),
        AllOf(HasSubstr("E643: 3 ranks on vm2, which has 2 core(s)"), HasSubstr("ppr:2:node")));
    EXPECT_THAT(place("two-core-vm", 3, {.cores = SharingRule::allow}).seats, SizeIs(3));
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
}  // namespace lockstep::test
