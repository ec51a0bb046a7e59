// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/topology.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <algorithm>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::caught_code;
using test::caught_text;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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
    const test::TempDir folder;
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

}  // namespace
}  // namespace lockstep
