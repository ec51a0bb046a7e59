// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/topology.hpp"

#include "lockstep/cluster/node_facts.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <rapidcheck/gtest.h>
#include <sched.h>

namespace lockstep {
namespace {

const std::filesystem::path fixtures = LOCKSTEP_TOPOLOGIES;

std::string refusal(const std::string& text) {
    return caught_text([&] { deserialize_topology(text, "node.json"); });
}

TEST(Topology, ComesBackFromItsTextForEveryFixture) {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(fixtures)) {
        const auto node = load_topology(entry.path());
        EXPECT_EQ(deserialize_topology(serialize(node)), node) << entry.path();
        ++count;
    }
    EXPECT_GE(count, 9);
}

TEST(Topology, ComesBackFromAFile) {
    const TempDir folder;
    const auto node = load_topology(fixtures / "dgx.json");
    save_topology(node, folder / "saved.json");
    EXPECT_EQ(load_topology(folder / "saved.json"), node);
}

TEST(Topology, KnowsWhichDevicesCompute) {
    const auto odd = load_topology(fixtures / "odd-numa.json");
    EXPECT_THAT(odd.gpus, SizeIs(5));
    EXPECT_THAT(usable_gpus(odd), SizeIs(4)) << "the display of the management controller is none";
    EXPECT_THAT(usable_gpus(load_topology(fixtures / "isolated.json")), SizeIs(1));
    EXPECT_THAT(usable_gpus(load_topology(fixtures / "cpu16.json")), IsEmpty());
}

TEST(Topology, FillsInWhatFollows) {
    const auto node = deserialize_topology(R"({"cpus": "0-3", "memory_bytes": 7})");
    EXPECT_THAT(node.cores, SizeIs(4));
    EXPECT_THAT(node.sockets, ElementsAre(ElementsAre(0, 1, 2, 3)));
    EXPECT_THAT(node.allowed_cpus, ElementsAre(0, 1, 2, 3));
    ASSERT_THAT(node.numa_nodes, SizeIs(1));
    EXPECT_EQ(node.numa_nodes[0].memory_bytes, 7u);
    EXPECT_EQ(numa_node_of(node, 3), 0);
    EXPECT_EQ(numa_node_of(node, 4), -1);
}

TEST(Topology, RefusesWhatIsNoTopology) {
    EXPECT_THAT(refusal("[]"), AllOf(HasSubstr("E222: 'node.json'"), HasSubstr("it is no object")));
    EXPECT_THAT(refusal(R"({"cpus": 4})"), HasSubstr("'cpus' is 4 (number), not text"));
    EXPECT_THAT(refusal(R"({"cpus": "3-1"})"), HasSubstr("not a list such as 0-3,8"));
    EXPECT_THAT(refusal(R"({"cpus": "0", "gpus": [{"pci": {"numa_node": 1.5}}]})"),
                AllOf(HasSubstr("'node.json: gpus[0]: pci'"),
                      HasSubstr("'numa_node' is 1.5 (number), not a whole number")));
    EXPECT_THAT(refusal(R"({"cpus": "0", "cores": ["0", "x"]})"),
                HasSubstr("'cores[1]' is \"x\" (string), not a list such as 0-3,8"));
    EXPECT_THAT(refusal(R"({"cpus": "0", "memory_bytes": -1})"), HasSubstr("not a count"));
    EXPECT_THAT(refusal(R"({"cpus": "0", "interfaces": [{"kind": "ether"}]})"),
                HasSubstr("not a kind of interface"));
}

TEST(Topology, RefusesAMisspeltKeyAndNamesTheRightOne) {
    const auto text = refusal(R"({"cpus": "0", "numa_node": []})");
    EXPECT_THAT(text, HasSubstr("E222: 'node.json' has an unknown key 'numa_node'"));
    EXPECT_THAT(text, HasSubstr("numa_nodes"));
}

TEST(Topology, RefusesContradictions) {
    EXPECT_THAT(refusal("{}"), HasSubstr("E606: 'node.json': there are no CPUs"));
    EXPECT_THAT(refusal(R"({"cpus": "0-1", "cores": ["0,1", "1"]})"),
                HasSubstr("CPU 1 is in two cores"));
    EXPECT_THAT(refusal(R"({"cpus": "0-1", "sockets": ["0"]})"),
                HasSubstr("CPU 1 is in no socket"));
    EXPECT_THAT(refusal(R"({"cpus": "0-1", "l3_groups": ["0-2"]})"),
                HasSubstr("CPU 2 is in a cache, but the CPUs are 0-1"));
    EXPECT_THAT(refusal(R"({"cpus": "0", "allowed_cpus": "1"})"), HasSubstr("CPU 1 is allowed"));
    EXPECT_THAT(refusal(R"({"cpus": "0", "gpus": [{"pci": {"address": "a", "numa_node": 4}}]})"),
                HasSubstr("GPU a is on NUMA node 4, which is missing"));
    EXPECT_THAT(
        refusal(R"({"cpus": "0", "gpus": [{"pci": {"address": "a"}}, {"pci": {"address": "A"}}]})"),
        HasSubstr("two GPUs have the address 'a'"));
    EXPECT_EQ(caught_code([] { load_topology(fixtures / "none.json"); }), "E201");
}

TEST(Topology, ReadsThisMachine) {
    const auto node = read_topology();
    EXPECT_FALSE(node.cpus.empty());
    EXPECT_FALSE(node.allowed_cpus.empty());
    EXPECT_FALSE(node.host_id().empty());
    EXPECT_TRUE(std::ranges::includes(node.cpus, node.allowed_cpus));
    EXPECT_EQ(deserialize_topology(serialize(node)), node);
}

constexpr auto avx512_flags = "fpu fma avx2 avx512f avx512dq avx512bw avx512vl avx512_bf16";

/// A node of which this process may use CPUs 2-5.
class NodeFactsTest : public testing::Test {
  protected:
    NodeFactsTest() {
        root_.file("proc/sys/kernel/hostname", "node-7\n");
        root_.file("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n");
        root_.file("proc/self/status",
                   "Name:\tx\nCpus_allowed:\t3c\nCpus_allowed_list:\t2-5\n"
                   "Mems_allowed_list:\t0-1\n");
        root_.file("proc/meminfo", "MemTotal:       16384000 kB\nMemFree:  1 kB\n");
        root_.file("proc/cpuinfo",
                   std::string("processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU @ 2 GHz\n"
                               "flags\t\t: ") +
                       avx512_flags + "\n\nprocessor\t: 1\nmodel name\t: Other\n");
    }

    NodeFacts facts() const { return read_node_facts(root_.path()); }

    TempDir root_;
};

TEST_F(NodeFactsTest, TellWhatTheKernelSays) {
    EXPECT_EQ(facts().host, "node-7");
    EXPECT_EQ(facts().host_id(), "11111111-2222-3333-4444-555555555555/node-7");
    EXPECT_THAT(facts().allowed_cpus, ElementsAre(2, 3, 4, 5));
    EXPECT_THAT(facts().allowed_memory_nodes, ElementsAre(0, 1));
    EXPECT_EQ(facts().cpu_model, "Some CPU @ 2 GHz") << "the first processor's";
    EXPECT_EQ(facts().instruction_set, InstructionSet::avx512);
    EXPECT_EQ(facts().memory_bytes, 16384000ull * 1024);
}

TEST_F(NodeFactsTest, NamesProcessorsOfArmByTheirNumbers) {
    const std::string grace =
        "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve2 bf16\n"
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n";
    root_.file("proc/cpuinfo", grace + "CPU part\t: 0xd4f\nCPU revision\t: 0\n");
    EXPECT_EQ(facts().cpu_model, "Arm Neoverse V2");
    EXPECT_EQ(facts().instruction_set, InstructionSet::basic);
    root_.file("proc/cpuinfo", grace + "CPU part\t: 0xfff\n");
    EXPECT_EQ(facts().cpu_model, "Arm processor 0xfff of maker 0x41");
}

// This process's control groups, files below /sys/fs/cgroup, and the limit that they come to.
struct MemoryLimit {
    std::string groups;
    std::map<std::string, std::string> files;
    std::optional<std::uint64_t> bytes;
};

TEST_F(NodeFactsTest, TakeTheSmallestLimitOfMemoryOnTheWayUp) {
    EXPECT_EQ(facts().memory_limit_bytes(), std::nullopt);
    EXPECT_EQ(facts().usable_memory_bytes(), 16384000ull * 1024);
    for (const auto& [groups, files, bytes] : std::vector<MemoryLimit>{
             {"0::/job/step/task",
              {{"job/memory.max", "2147483648"},
               {"job/step/memory.max", "4294967296"},
               {"job/step/task/memory.max", "max"}},
              2147483648},
             {"9:cpu:/x\n4:hugetlb,memory:/job",
              {{"memory/job/memory.limit_in_bytes", "1073741824"}},
              1073741824},
             {"4:memory:/job",  // version 1's word for no limit
              {{"memory/job/memory.limit_in_bytes", "9223372036854771712"}},
              {}},
             {"0::/../../of/the/host", {{"memory.max", "536870912"}}, 536870912},  // a container's
             {"0::/", {{"memory.max", "1099511627776"}}, {}}}) {  // above the total
        std::filesystem::remove_all(root_ / "sys");
        root_.file("proc/self/cgroup", groups + "\n");
        for (const auto& [name, text] : files) root_.file("sys/fs/cgroup/" + name, text + "\n");
        EXPECT_EQ(facts().memory_limit_bytes(), bytes) << groups;
        EXPECT_EQ(facts().usable_memory_bytes(), bytes.value_or(16384000ull * 1024)) << groups;
    }
}

TEST(NodeFacts, AreEmptyWhereNothingIsThere) {
    const TempDir nothing;
    const auto facts = read_node_facts(nothing.path());
    EXPECT_EQ(facts.host, "");
    EXPECT_THAT(facts.allowed_cpus, IsEmpty());
    EXPECT_EQ(facts.usable_memory_bytes(), 0u);
    EXPECT_EQ(facts.instruction_set, InstructionSet::basic);
}

TEST(NodeFacts, OfThisNodeAgreeWithTheKernel) {
    cpu_set_t set;
    CPU_ZERO(&set);
    ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
    const auto facts = read_node_facts();
    EXPECT_EQ(static_cast<int>(facts.allowed_cpus.size()), CPU_COUNT(&set));
    EXPECT_FALSE(facts.host.empty());
    EXPECT_FALSE(facts.boot_id.empty());
    EXPECT_GT(facts.usable_memory_bytes(), 0u);
}

TEST(InstructionSet, IsTheBestThatAllFlagsAllow) {
    EXPECT_EQ(best_instruction_set("sse4_1 sse4_2 avx"), InstructionSet::basic);
    EXPECT_EQ(best_instruction_set("avx2"), InstructionSet::basic);
    EXPECT_EQ(best_instruction_set("avx2 fma"), InstructionSet::avx2);
    EXPECT_EQ(best_instruction_set("avx2 fma avx512f"), InstructionSet::avx2);
    const std::string avx512 = avx512_flags, bf16 = avx512 + " avx512_vnni avx512_bf16";
    const std::string tiles = " avx512_fp16 amx_tile amx_int8 amx_bf16";
    EXPECT_EQ(best_instruction_set(avx512), InstructionSet::avx512);
    EXPECT_EQ(best_instruction_set(bf16), InstructionSet::avx512_bf16);
    EXPECT_EQ(best_instruction_set(avx512 + tiles), InstructionSet::avx512);
    EXPECT_EQ(best_instruction_set(bf16 + tiles), InstructionSet::amx);
}

TEST(InstructionSet, HasNamesInBothLibrariesWords) {
    for (const auto level : {InstructionSet::basic,
                             InstructionSet::avx2,
                             InstructionSet::avx512,
                             InstructionSet::avx512_bf16,
                             InstructionSet::amx})
        EXPECT_EQ(parse_instruction_set(instruction_set_name(level)), level);
    EXPECT_EQ(instruction_set_name(InstructionSet::basic), "default");
    EXPECT_EQ(onednn_isa_name(InstructionSet::avx512), "AVX512_CORE");
    EXPECT_EQ(onednn_isa_name(InstructionSet::amx), "AVX512_CORE_AMX");
    EXPECT_EQ(aten_capability(InstructionSet::amx), "avx512");
    EXPECT_EQ(parse_instruction_set("sse9"), std::nullopt);
    EXPECT_LT(InstructionSet::avx2, InstructionSet::avx512);
}

TEST(CpuList, IsReadSortedAndMerged) {
    EXPECT_THAT(parse_cpu_list("0-3,8"), Optional(ElementsAre(0, 1, 2, 3, 8)));
    EXPECT_THAT(parse_cpu_list("5"), Optional(ElementsAre(5)));
    EXPECT_THAT(parse_cpu_list(""), Optional(ElementsAre()));
    EXPECT_THAT(parse_cpu_list("8,0-2,1-3"), Optional(ElementsAre(0, 1, 2, 3, 8)));
    for (const auto* text : {"x", "1-", "-1", "3-1", "1,,2", "0-999999999", "1 2"})
        EXPECT_FALSE(parse_cpu_list(text)) << text;
    EXPECT_EQ(cpu_list_text({}), "-");
}

RC_GTEST_PROP(CpuList, ComesBackFromItsText, ()) {
    const auto cpus =
        *rc::gen::nonEmpty(rc::gen::container<std::set<int>>(rc::gen::inRange(0, 300)));
    const std::vector<int> list(cpus.begin(), cpus.end());
    RC_ASSERT(parse_cpu_list(cpu_list_text(list)) == list);
}

}  // namespace

}  // namespace lockstep
