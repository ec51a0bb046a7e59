// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/placement.hpp"

#include "placement_cases.hpp"
#include "support/unit.hpp"

#include <thread>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

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
    EXPECT_THAT(place_on_node(node_of("dgx"), ranks, {}).warnings,
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
    EXPECT_EQ(seat_as_it_is(node, ranks[1], planned), planned) << "kept";
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

EarlyBinding early(const NodeTopology& node,
                   int local_rank,
                   const std::map<std::string, std::string>& more = {},
                   const std::vector<int>& offered = {}) {
    std::map<std::string, std::string> variables{
        {"OMPI_COMM_WORLD_RANK", std::to_string(local_rank)},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
    variables.insert(more.begin(), more.end());
    const Environment environment(variables);
    return early_binding(node, read_launch_facts(environment), environment, offered);
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
    for (const auto* silent : {"off", "0-7"}) {
        const auto none = early(node_of("cpu16"), 0, {{"LOCKSTEP_BOUND", silent}});
        EXPECT_THAT(none.cpus, IsEmpty());
        EXPECT_EQ(none.why_not, "") << silent;
    }
    const auto unknown = early(node_of("cpu16"), 0, {{"LOCKSTEP_BOUND", "on"}});
    EXPECT_THAT(unknown.cpus, IsEmpty());
    EXPECT_THAT(unknown.why_not, HasSubstr("LOCKSTEP_BOUND is 'on', and only off is known"));
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

TEST(EarlyBinding, SharesOutWhatTheLauncherItselfMayUse) {
    auto node = node_of("cpu16");
    node.allowed_cpus = {4, 5, 6, 7};
    EXPECT_THAT(early(node, 1).cpus, IsEmpty()) << "bound by it";
    EXPECT_THAT(early(node, 1, {}, {4, 5, 6, 7}).cpus, ElementsAre(6, 7));
}

TEST(EarlyBinding, TakesMemoryFromTheNumaNodeOfTheCores) {
    auto node = node_of("two-socket");
    EXPECT_EQ(early(node, 0).memory_node, 0);
    EXPECT_EQ(early(node, 1).memory_node, 1);
    node.allowed_cpus = {24, 25};
    EXPECT_EQ(early(node, 0).memory_node, 1) << "the launcher's cores";
    EXPECT_EQ(early(node_of("two-core-vm"), 0).memory_node, std::nullopt);
}

TEST(EarlyBinding, DoesNothingOutsideALaunch) {
    const Environment none(std::map<std::string, std::string>{});
    EXPECT_THAT(early_binding(node_of("cpu16"), read_launch_facts(none), none).cpus, IsEmpty());
}

/// A policy is a thread's own: what one thread sets leaves the test program alone.
template <class Body>
void in_a_thread(Body&& body) {
    std::thread(body).join();
}

bool may_set_policies() {
    bool may = false;
    in_a_thread([&] { may = ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0; });
    return may;
}

TEST(MemoryNode, IsTheOneOfAllCores) {
    const auto node = node_of("two-socket");
    EXPECT_EQ(memory_node_of(node, {0, 1, 23}), 0);
    EXPECT_EQ(memory_node_of(node, {24, 47, 95}), 1);
    EXPECT_EQ(memory_node_of(node, {23, 24}), std::nullopt) << "both";
    EXPECT_EQ(memory_node_of(node, {}), std::nullopt);
    EXPECT_EQ(memory_node_of(node, {4000}), std::nullopt);
}

TEST(MemoryNode, IsNoneWhereThereIsNoChoice) {
    EXPECT_EQ(memory_node_of(node_of("two-core-vm"), {0}), std::nullopt);
    EXPECT_EQ(memory_node_of(node_of("cloud-vm"), {0}), std::nullopt);
    auto node = node_of("two-socket");
    node.numa_nodes[1].memory_bytes = 0;
    EXPECT_EQ(memory_node_of(node, {0}), std::nullopt);
}

TEST(MemoryPolicy, IsReadBackAsItWasSet) {
    if (!may_set_policies()) GTEST_SKIP() << "this container forbids set_mempolicy";
    in_a_thread([] {
        EXPECT_EQ(preferred_memory_node(), std::nullopt);
        EXPECT_TRUE(prefer_memory_of(0));
        EXPECT_EQ(preferred_memory_node(), 0);
        EXPECT_TRUE(prefer_memory_of(0)) << "again, as after exec";
        std::optional<int> inherited;
        std::thread([&] { inherited = preferred_memory_node(); }).join();
        EXPECT_EQ(inherited, 0);
    });
    EXPECT_EQ(preferred_memory_node(), std::nullopt) << "the thread's own";
}

TEST(MemoryPolicy, OfTheUserIsKept) {
    if (!may_set_policies()) GTEST_SKIP() << "this container forbids set_mempolicy";
    in_a_thread([] {
        unsigned long nodes = 1;
        ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 64), 0);
        EXPECT_FALSE(prefer_memory_of(0));
        int mode = 0;
        ASSERT_EQ(::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0), 0);
        EXPECT_EQ(mode, MPOL_BIND);
    });
}

TEST(MemoryPolicy, OfANodeThatIsNotThereIsNoError) {
    in_a_thread([] {
        EXPECT_FALSE(prefer_memory_of(1000));
        EXPECT_FALSE(prefer_memory_of(-1));
        EXPECT_FALSE(prefer_memory_of(1 << 20));
        EXPECT_EQ(preferred_memory_node(), std::nullopt);
    });
}

}  // namespace
}  // namespace lockstep::test
