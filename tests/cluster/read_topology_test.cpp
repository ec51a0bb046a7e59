// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/topology.hpp"

#include "support/unit.hpp"
#include "topology/nvml.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::Field;

/// Two sockets of two cores with two threads each; cores 0-1 and 4-5 of them are this process's.
class ReadTopologyTest : public testing::Test {
  protected:
    ReadTopologyTest() {
        file("proc/sys/kernel/hostname", "n1");
        file("proc/sys/kernel/random/boot_id", "b");
        file("proc/self/status", "Cpus_allowed_list:\t0-1,4-5\nMems_allowed_list:\t0-1");
        file("proc/meminfo", "MemTotal: 4096 kB");
        file("sys/devices/system/cpu/online", "0-7");
        for (int cpu = 0; cpu < 8; ++cpu) add_cpu(cpu);
        file("sys/devices/system/node/online", "0-1");
        file("sys/devices/system/node/node0/cpumap", "33");
        file("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       2048 kB");
        file("sys/devices/system/node/node1/cpumap", "cc");
    }

    void file(const fs::path& name, const std::string& text) { root_.file(name, text + "\n"); }

    void add_cpu(int cpu) {
        const auto folder = fs::path("sys/devices/system/cpu") / ("cpu" + std::to_string(cpu));
        const bool is_first_socket = cpu % 4 < 2;
        const auto socket = is_first_socket ? "33" : "cc";  // 0-1,4-5 and 2-3,6-7
        file(folder / "topology/core_cpus", std::vector{"11", "22", "44", "88"}.at(cpu % 4));
        file(folder / "topology/package_cpus", socket);
        file(folder / "topology/physical_package_id", is_first_socket ? "0" : "1");
        file(folder / "topology/core_id", std::to_string(cpu % 4));
        file(folder / "cache/index0/level", "1");
        file(folder / "cache/index0/type", "Data");
        file(folder / "cache/index3/level", "3");
        file(folder / "cache/index3/type", "Unified");
        file(folder / "cache/index3/shared_cpu_map", socket);
        file(folder / "cpufreq/scaling_governor", "powersave");
    }

    /// A device at `path` below /sys/devices, and the link that a class or bus has to it.
    fs::path device(const fs::path& path, const fs::path& link) {
        const auto folder = fs::path("sys/devices") / path;
        fs::create_directories(root_ / folder);
        fs::create_directories((root_ / link).parent_path());
        fs::create_directory_symlink(root_ / folder, root_ / link);
        return folder;
    }

    void add_gpu(const std::string& address, const std::string& path, const char* vendor) {
        const auto folder = device(path, "sys/bus/pci/devices/" + address);
        file(folder / "class", "0x030200");
        file(folder / "vendor", vendor);
        file(folder / "numa_node", "1");
        file(folder / "local_cpulist", "2-3,6-7");
        file(folder / "current_link_speed", "16.0 GT/s PCIe");
        file(folder / "current_link_width", "8");
        file(folder / "max_link_width", "16");
    }

    NodeTopology read(const NvmlFunctions* nvml = nullptr) {
        return read_topology({root_.path(), nvml, {}});
    }

    TempDir root_;
};

TEST_F(ReadTopologyTest, FindsCoresCachesSocketsAndMemory) {
    const auto node = read();
    EXPECT_THAT(
        node.cores,
        ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
    EXPECT_THAT(node.sockets, ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7)));
    EXPECT_EQ(node.l3_groups, node.sockets);
    ASSERT_THAT(node.numa_nodes, SizeIs(2));
    EXPECT_EQ(node.numa_nodes[0].memory_bytes, 2048u * 1024);
    EXPECT_THAT(node.allowed_cpus, ElementsAre(0, 1, 4, 5));
    EXPECT_THAT(node.allowed_memory_nodes, ElementsAre(0, 1));
    EXPECT_EQ(numa_node_of(node, 5), 0);
    EXPECT_EQ(numa_node_of(node, 2), 1);
    EXPECT_EQ(node.governor, "powersave");
    EXPECT_EQ(node.host_id(), "b/n1");
}

TEST_F(ReadTopologyTest, LeavesOutCpusThatAreOffline) {
    file("sys/devices/system/cpu/online", "0-3");
    const auto node = read();
    EXPECT_THAT(node.cores,
                ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
    EXPECT_THAT(node.allowed_cpus, ElementsAre(0, 1));
}

TEST_F(ReadTopologyTest, GivesMemoryWithoutCpusNoneOfItsNeighbours) {
    file("sys/devices/system/node/online", "0-2");
    file("sys/devices/system/node/node2/cpumap", "0");
    file("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal:       8192 kB");
    file("sys/devices/system/node/node0/distance", "10 20 15");
    file("sys/devices/system/node/node1/distance", "20 10 30");
    file("sys/devices/system/node/node2/distance", "15 30 10");
    const auto node = read();
    ASSERT_THAT(node.numa_nodes, SizeIs(3));
    EXPECT_THAT(node.numa_nodes[0].cpus, ElementsAre(0, 1, 4, 5));
    EXPECT_THAT(node.numa_nodes[2].cpus, IsEmpty());
    EXPECT_EQ(node.numa_nodes[2].memory_bytes, 8192u * 1024);
    EXPECT_EQ(deserialize_topology(serialize(node)), node);
}

TEST_F(ReadTopologyTest, LeavesCpusWithoutTheLastCacheAlone) {
    for (const int cpu : {3, 7})
        fs::remove_all(root_ / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "cache");
    for (const int cpu : {2, 6})
        file("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/shared_cpu_map",
             "44");
    const auto node = read();
    EXPECT_THAT(
        node.l3_groups,
        ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 6), ElementsAre(3), ElementsAre(7)));
    EXPECT_EQ(deserialize_topology(serialize(node)), node);
}

TEST_F(ReadTopologyTest, LeavesTheEnvironmentAsItWas) {
    read();
    EXPECT_EQ(std::getenv("HWLOC_FSROOT"), nullptr);
    EXPECT_EQ(std::getenv("HWLOC_PLUGINS_PATH"), nullptr);
}

// Two sockets that take turns, two caches in each, two threads to a core: as hwloc describes it.
TEST_F(ReadTopologyTest, TakesProcessorsFromHwlocsXml) {
    file("proc/self/status", "Cpus_allowed_list:\t0-3,20");
    const auto xml = fs::path(LOCKSTEP_TOPOLOGIES) / "../hwloc/two-turns.xml";
    const auto node = read_topology({root_.path(), nullptr, xml});
    EXPECT_EQ(node.cpus.size(), 16u);
    EXPECT_THAT(node.allowed_cpus, ElementsAre(0, 1, 2, 3)) << "and none that is not there";
    ASSERT_THAT(node.cores, SizeIs(8));
    EXPECT_THAT(node.cores[1], ElementsAre(1, 9));
    EXPECT_THAT(node.sockets,
                ElementsAre(ElementsAre(0, 2, 4, 6, 8, 10, 12, 14),
                            ElementsAre(1, 3, 5, 7, 9, 11, 13, 15)));
    EXPECT_THAT(node.l3_groups, SizeIs(4));
    EXPECT_THAT(node.l3_groups[1], ElementsAre(1, 3, 9, 11));
    ASSERT_THAT(node.numa_nodes, SizeIs(2));
    EXPECT_EQ(node.numa_nodes[1].cpus, node.sockets[1]);
    EXPECT_EQ(node.numa_nodes[1].memory_bytes, 1000000000u);
}

TEST_F(ReadTopologyTest, SaysThatAnXmlIsNone) {
    for (const auto& xml : {root_ / "missing.xml", root_.file("bad.xml", "{}")})
        EXPECT_EQ(caught_code([&] { read_topology({root_.path(), nullptr, xml}); }), "E222");
}

TEST_F(ReadTopologyTest, ManagesWithoutAnySysfs) {
    fs::remove_all(root_ / "sys");
    const auto node = read();
    EXPECT_THAT(node.cpus, ElementsAre(0, 1, 4, 5));
    EXPECT_THAT(node.cores, SizeIs(4));
    EXPECT_THAT(node.numa_nodes, SizeIs(1));
}

TEST_F(ReadTopologyTest, FindsGpusOnPciAndWhatTheDriverSays) {
    add_gpu("0000:0b:00.0", "pci0000:0a/0000:0a:01.0/0000:0b:00.0", "0x10de");
    add_gpu("0000:03:00.0", "pci0000:00/0000:00:1c.0/0000:03:00.0", "0x1a03");
    file("proc/driver/nvidia/gpus/0000:0b:00.0/information",
         "Model: \t\t NVIDIA A30\nGPU UUID: \t GPU-aaaa\n");
    file("proc/driver/nvidia/version",
         "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build");
    EXPECT_FALSE(read().kernel.has_imex_channel);
    file("dev/nvidia-caps-imex-channels/channel2048", "");
    const auto node = read();
    EXPECT_TRUE(node.kernel.has_imex_channel);
    ASSERT_THAT(node.gpus, SizeIs(2));
    const auto& gpu = node.gpus[1];
    EXPECT_EQ(gpu.pci.path, "pci0000:0a/0000:0a:01.0/0000:0b:00.0");
    EXPECT_EQ(gpu.pci.numa_node, 1);
    EXPECT_EQ(gpu.pci.link, (PciLink{16, 0, 8, 16}));
    EXPECT_EQ(gpu.model, "NVIDIA A30");
    EXPECT_EQ(gpu.uuid, "GPU-aaaa");
    EXPECT_THAT(usable_gpus(node), ElementsAre(&node.gpus[1]));
    EXPECT_EQ(node.kernel.nvidia_driver, "550.54.15");
    EXPECT_EQ(nvidia_driver_version(root_.path()), "550.54.15");
    EXPECT_EQ(nvidia_driver_version("/nonexistent"), "");
    EXPECT_TRUE(node.kernel.nvidia_is_open);
}

TEST_F(ReadTopologyTest, KnowsNvidiaGpusByVendorAndClass) {
    add_gpu("0000:c1:00.0", "pci0000:c0/0000:c1:00.0", "0x10de");
    add_gpu("0000:41:00.0", "pci0000:40/0000:41:00.0", "0x10de");
    add_gpu("0000:41:00.1", "pci0000:40/0000:41:00.1", "0x10de");
    file("sys/bus/pci/devices/0000:41:00.1/class", "0x040300");    // its sound device
    add_gpu("0000:02:00.0", "pci0000:00/0000:02:00.0", "0x1a03");  // a display-only decoy
    std::vector<std::string> addresses;
    for (const auto& gpu : read().gpus)
        if (gpu.pci.vendor == "0x10de") addresses.push_back(gpu.pci.address);
    EXPECT_THAT(addresses, ElementsAre("0000:41:00.0", "0000:c1:00.0"));
}

TEST_F(ReadTopologyTest, FindsRdmaPortsInOrderOfTheirNumbers) {
    for (const auto* name : {"mlx5_10", "mlx5_2"}) {
        const auto ib = fs::path("sys/class/infiniband") / name;
        device("pci0000:0a/0000:0a:02.0/0000:0c:00.0", ib / "device");
        file(ib / "ports/1/state", "4: ACTIVE");
        file(ib / "ports/1/phys_state", "5: LinkUp");
        file(ib / "ports/1/rate", "400 Gb/sec (4X NDR)");
        file(ib / "ports/1/link_layer", "Ethernet");
        file(ib / "ports/1/gid_attrs/types/0", "IB/RoCE v1");
        file(ib / "ports/1/gid_attrs/types/1", "RoCE v2");
        file(ib / "ports/1/gid_attrs/types/2", "RoCE v2");
        file(ib / "ports/1/gid_attrs/ndevs/0", "ens1np0");
    }
    const auto ports = read().rdma_ports;
    ASSERT_THAT(ports, SizeIs(2));
    EXPECT_EQ(ports[0].name(), "mlx5_2:1");
    EXPECT_TRUE(ports[0].is_up());
    EXPECT_EQ(ports[0].phys_state, "LinkUp");
    EXPECT_EQ(ports[0].rate_gbps, 400);
    EXPECT_THAT(ports[0].gid_types, ElementsAre("IB/RoCE v1", "RoCE v2"));
    EXPECT_EQ(ports[0].interface, "ens1np0");
    EXPECT_EQ(ports[0].pci.address, "0000:0c:00.0");
}

TEST_F(ReadTopologyTest, TellsKindsOfInterfaces) {
    const auto add = [&](const std::string& name, const std::string& path, const char* type) {
        const auto folder = device(path + "/net/" + name, "sys/class/net/" + name);
        file(folder / "type", type);
        file(folder / "operstate", "up");
        file(folder / "carrier", "1");
        file(folder / "mtu", "9000");
        file(folder / "ifindex", "3");
        file(folder / "iflink", name == "eth9" ? "8" : "3");
        return folder;
    };
    const auto eno = add("eno1", "pci0000:00/0000:00:02.0", "1");
    fs::create_directory_symlink(root_ / "sys/devices/pci0000:00/0000:00:02.0",
                                 root_ / eno / "device");
    add("lo", "virtual", "772");
    add("docker0", "virtual", "1");
    add("br-0123456789ab", "virtual", "1");
    fs::create_directories(root_ / add("virbr0", "virtual", "1") / "bridge");
    add("eth9", "virtual", "1");
    add("tun0", "virtual", "65534");
    file("sys/class/net/bonding_masters", "");
    const auto interfaces = read().interfaces;
    const auto kind = [&](const char* name) {
        return std::ranges::find(interfaces, name, &NetworkInterface::name)->kind;
    };
    EXPECT_THAT(interfaces, SizeIs(7));
    EXPECT_EQ(kind("eno1"), InterfaceKind::ethernet);
    EXPECT_EQ(kind("lo"), InterfaceKind::loopback);
    EXPECT_EQ(kind("docker0"), InterfaceKind::docker);
    EXPECT_EQ(kind("br-0123456789ab"), InterfaceKind::docker);
    EXPECT_EQ(kind("virbr0"), InterfaceKind::bridge);
    EXPECT_EQ(kind("eth9"), InterfaceKind::veth);
    EXPECT_EQ(kind("tun0"), InterfaceKind::tunnel);
    const auto& first = *std::ranges::find(interfaces, "eno1", &NetworkInterface::name);
    EXPECT_FALSE(first.is_virtual);
    EXPECT_EQ(first.mtu, 9000);
    EXPECT_EQ(first.pci.address, "0000:00:02.0");
}

TEST_F(ReadTopologyTest, TakesTheSmallestVersion2QuotaOnTheWayUp) {
    file("proc/self/cgroup", "0::/job/task");
    file("sys/fs/cgroup/job/cpu.max", "200000 100000");
    file("sys/fs/cgroup/job/task/cpu.max", "max 100000");
    file("sys/fs/cgroup/job/task/cpu.stat", "usage_usec 5\nnr_throttled 7");
    file("sys/fs/cgroup/job/task/cpuset.cpus.effective", "0-1");
    file("sys/fs/cgroup/job/task/cpuset.mems.effective", "0");
    const auto group = read().control_group;
    EXPECT_EQ(group.version, 2);
    EXPECT_THAT(group.cpu_quota, Optional(2.0));
    EXPECT_EQ(group.throttled_periods, 7u);
    EXPECT_THAT(group.cpus, ElementsAre(0, 1));
    EXPECT_THAT(group.memory_nodes, ElementsAre(0));
}

TEST_F(ReadTopologyTest, ReadsVersion1Groups) {
    file("proc/self/cgroup", "9:cpuset:/job\n8:cpu,cpuacct:/job\n0::/");
    file("sys/fs/cgroup/cpuset/job/cpuset.effective_cpus", "4-5");
    file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000");
    file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
    const auto group = read().control_group;
    EXPECT_EQ(group.version, 1);
    EXPECT_THAT(group.cpus, ElementsAre(4, 5));
    EXPECT_THAT(group.cpu_quota, Optional(0.5));
}

TEST_F(ReadTopologyTest, ReadsLimitsOfThisProcess) {
    file("proc/self/limits",
         "Limit                     Soft Limit           Hard Limit           Units\n"
         "Max stack size            8388608              unlimited            bytes\n"
         "Max locked memory         unlimited            unlimited            bytes\n"
         "Max open files            1024                 4096                 files");
    const auto limits = read().limits;
    EXPECT_THAT(limits.stack_bytes, Optional(8388608u));
    EXPECT_EQ(limits.locked_memory_bytes, std::nullopt);
    EXPECT_THAT(limits.open_files, Optional(1024u));
}

// Two GPUs whose twelve links meet each other's, the second with a broken link, waiting for a
// reset.
namespace fake {

NvmlDevice handle(unsigned index) {
    return reinterpret_cast<NvmlDevice>(static_cast<std::uintptr_t>(index + 1));
}
unsigned index_of(NvmlDevice device) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}
NvmlPciInfo pci_of(unsigned index) {
    NvmlPciInfo pci{};
    pci.bus = index == 0 ? 0x0b : 0x1b;
    return pci;
}

NvmlFunctions functions() {
    NvmlFunctions f{};
    f.count = [](unsigned* count) { return *count = 2, 0; };
    f.device = [](unsigned index, NvmlDevice* device) { return *device = handle(index), 0; };
    f.pci = [](NvmlDevice d, NvmlPciInfo* pci) { return *pci = pci_of(index_of(d)), 0; };
    f.uuid = [](NvmlDevice d, char* text, unsigned) {
        std::strcpy(text, index_of(d) == 0 ? "GPU-zero" : "GPU-one");
        return 0;
    };
    f.link_state = [](NvmlDevice d, unsigned link, int* active) {
        *active = index_of(d) == 1 && link == 3 ? 0 : 1;
        return link < 4 ? 0 : 2;
    };
    f.link_remote_type = [](NvmlDevice, unsigned, int* type) { return *type = 0, 0; };
    f.link_remote = [](NvmlDevice d, unsigned, NvmlPciInfo* pci) {
        return *pci = pci_of(1 - index_of(d)), 0;
    };
    f.peer_status = [](NvmlDevice, NvmlDevice, int, int* status) { return *status = 0, 0; };
    f.processes = [](NvmlDevice, unsigned* count, void*) { return *count = 3, 7; };
    f.remapped_rows = [](NvmlDevice d, unsigned*, unsigned*, unsigned* pending, unsigned*) {
        return *pending = index_of(d), 0;
    };
    f.fabric = [](NvmlDevice d, NvmlFabric* fabric) {
        fabric->domain[15] = static_cast<unsigned char>(index_of(d) * 0xab);
        fabric->clique = 7;
        fabric->state = 3;
        return 0;
    };
    f.slow_reasons = [](NvmlDevice, unsigned long long* bits) { return *bits = 0xC0, 0; };
    return f;
}

}  // namespace fake

TEST_F(ReadTopologyTest, AddsWhatNvmlKnows) {
    add_gpu("0000:1b:00.0", "pci0000:0a/0000:0a:01.0/0000:1b:00.0", "0x10de");
    const auto nvml = fake::functions();
    const auto node = read(&nvml);
    ASSERT_THAT(node.gpus, SizeIs(2)) << "NVML's GPUs count where /sys/bus/pci hides them";
    const auto& gpu = node.gpus[1];
    EXPECT_EQ(gpu.pci.address, "0000:1b:00.0");
    EXPECT_EQ(gpu.uuid, "GPU-one");
    EXPECT_TRUE(gpu.has_driver);
    EXPECT_EQ(gpu.nvlinks_active, 3);
    EXPECT_EQ(gpu.nvlinks_down, 1);
    EXPECT_THAT(gpu.peers, ElementsAre(GpuPeer{"0000:0b:00.0", 3, "ok"}));
    EXPECT_THAT(gpu.health.processes, Optional(3));
    EXPECT_THAT(gpu.health.awaits_reset, Optional(true));
    EXPECT_THAT(gpu.health.slowed_by, ElementsAre("thermal", "power brake"));
    EXPECT_EQ(gpu.nvlink_domain, "000000000000000000000000000000ab.7");
    EXPECT_EQ(node.gpus[0].nvlink_domain, "") << "a node by itself has a domain of zeros";
    EXPECT_EQ(gpu.health.ecc_uncorrected, std::nullopt) << "a function that is missing";
    EXPECT_EQ(deserialize_topology(serialize(node)), node);
}

TEST_F(ReadTopologyTest, SaysWhichGpuNvmlDoesNotOpen) {
    auto nvml = fake::functions();
    nvml.device = [](unsigned, NvmlDevice*) { return 4; };
    const auto node = read(&nvml);
    EXPECT_THAT(node.gpus, IsEmpty());
    EXPECT_THAT(node.notes, SizeIs(2));
}

}  // namespace
}  // namespace lockstep
