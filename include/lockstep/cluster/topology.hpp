// SPDX-License-Identifier: Apache-2.0
/// @file
/// The hardware and limits of a node: CPUs, memory, GPUs, network ports; read live or from JSON.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/record.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Memory and the CPUs next to it.
struct NumaNode {
    int id = 0;
    std::vector<int> cpus;
    std::uint64_t memory_bytes = 0;
    bool operator==(const NumaNode&) const = default;
};

/// A PCI link with its present and its maximum speed and width; 0 if the kernel does not report
/// them. Idle GPUs lower their speed, never their width.
struct PciLink {
    double speed_gts = 0, max_speed_gts = 0;  ///< GT/s
    int width = 0, max_width = 0;             ///< lanes
    bool operator==(const PciLink&) const = default;
};

/// The place of a device.
struct PciPlace {
    std::string address;       ///< "0000:1b:00.0", lower case; "" for a device that is not on PCI
    std::string path;          ///< "pci0000:1a/0000:1a:01.0/0000:1b:00.0", below /sys/devices
    int numa_node = -1;        ///< -1: the firmware does not report it
    std::vector<int> cpus;     ///< local_cpulist
    std::string vendor;        ///< "0x10de"
    std::string device_class;  ///< "0x030200"
    PciLink link;
    bool operator==(const PciPlace&) const = default;
};

/// The path from one GPU to another.
struct GpuPeer {
    std::string address;      ///< PCI address of the other
    int nvlinks = 0;          ///< active links to it, direct or through switches
    std::string peer_access;  ///< "ok", "not supported", ...; "" if NVML does not report it
    bool operator==(const GpuPeer&) const = default;
};

/// NVML's state of a GPU; nothing if NVML does not report it.
struct GpuHealth {
    std::optional<std::uint64_t> memory_bytes, memory_used_bytes;
    std::optional<int> processes;                  ///< compute processes of all users
    std::string compute_mode;                      ///< "default", "exclusive process", "prohibited"
    std::optional<bool> keeps_driver_loaded;       ///< persistence mode
    std::optional<std::uint64_t> ecc_uncorrected;  ///< since the driver was loaded
    std::optional<bool> awaits_reset;              ///< rows to remap or pages to retire are pending
    std::vector<std::string> slowed_by;            ///< "power brake", "thermal", "hardware"
    bool operator==(const GpuHealth&) const = default;
};

/// One NVIDIA GPU, or a device that looks like one on PCI.
struct GpuFacts {
    PciPlace pci;
    std::string uuid;  ///< "GPU-..."; "" without NVML
    std::string model;
    bool has_driver = false;       ///< NVML knows it: CUDA can use it, if this process may
    bool has_render_node = false;  ///< /dev/dri/renderD*
    bool has_mig = false;          ///< divided into instances
    std::vector<std::string> mig_uuids;
    int nvlinks_active = 0, nvlinks_down = 0;
    bool has_nvswitch = false;  ///< its links end in a switch: all GPUs of the node are peers
    std::string nvlink_domain;  ///< equal where links reach GPUs of other nodes; "": of no other
    std::vector<GpuPeer> peers;
    GpuHealth health;
    bool operator==(const GpuFacts&) const = default;

    const std::string& address() const { return pci.address; }  ///< to find it by
};

/// One port of an RDMA device.
struct RdmaPort {
    std::string device;  ///< "mlx5_0"
    int port = 1;
    std::string state;       ///< "ACTIVE", "DOWN", "INIT"
    std::string phys_state;  ///< "LinkUp", "Disabled", "Polling"
    double rate_gbps = 0;
    std::string link_layer;              ///< "InfiniBand" or "Ethernet"
    std::vector<std::string> gid_types;  ///< each once: "IB/RoCE v1", "RoCE v2"
    std::string firmware;
    std::string interface;  ///< its network interface, "" if it has none
    PciPlace pci;
    bool operator==(const RdmaPort&) const = default;

    /// Returns "mlx5_0:1", as UCX and NCCL write it.
    std::string name() const;
    bool is_up() const { return state == "ACTIVE"; }  ///< it can carry messages now
};

/// The type of an interface.
enum class InterfaceKind {
    ethernet,
    infiniband,
    loopback,
    bridge,
    docker,
    bond,
    vlan,
    tunnel,
    veth,
    dummy,
    other
};
std::string_view interface_kind_name(InterfaceKind kind);  ///< the enumerator's name

/// One network interface.
struct NetworkInterface {
    std::string name;
    std::string state;  ///< operstate: "up", "down", "unknown"
    bool has_carrier = false;
    int mtu = 0;
    double speed_mbps = 0;               ///< 0: not reported
    std::vector<std::string> addresses;  ///< "10.0.0.7/24", "fe80::1/64"
    bool is_virtual = false;             ///< it has no device
    InterfaceKind kind = InterfaceKind::other;
    PciPlace pci;
    bool operator==(const NetworkInterface&) const = default;
};

/// Soft limits of this process; nothing: unlimited.
struct ResourceLimits {
    std::optional<std::uint64_t> locked_memory_bytes, open_files, stack_bytes, processes;
    bool operator==(const ResourceLimits&) const = default;
};

/// Kernel and driver settings that decide whether devices reach each other.
struct KernelFacts {
    std::string release;  ///< "6.1.0-18-amd64"
    std::string command_line;
    bool has_iommu = false;       ///< /sys/class/iommu is not empty
    std::string nvidia_driver;    ///< "550.54.15", "" without a driver
    bool nvidia_is_open = false;  ///< the open kernel module
    bool has_nvidia_peermem = false;
    bool has_imex_channel = false;  ///< this process may share GPU memory with other nodes
    int ptrace_scope = 0;           ///< yama's; 0 without
    bool operator==(const KernelFacts&) const = default;
};

/// Returns the version of the kernel's part of the driver: "550.54.15"; "" without it.
std::string nvidia_driver_version(const std::filesystem::path& root = "/");

/// One node as one process sees it: NodeFacts, and facts that take longer to read.
struct NodeTopology : NodeFacts {
    bool is_container = false;
    std::string governor;  ///< governor of the first allowed CPU; "" if there is none

    std::vector<int> cpus;                    ///< online CPUs
    std::vector<std::vector<int>> cores;      ///< hardware threads of each core
    std::vector<std::vector<int>> l3_groups;  ///< CPUs that share a last-level cache
    std::vector<std::vector<int>> sockets;
    std::vector<NumaNode> numa_nodes;

    std::vector<GpuFacts> gpus;                ///< by PCI address
    std::vector<RdmaPort> rdma_ports;          ///< by device (mlx5_2 before mlx5_10), then port
    std::vector<NetworkInterface> interfaces;  ///< by name

    ResourceLimits limits;
    KernelFacts kernel;
    std::vector<std::string>
        notes;  ///< what could not be read, with reasons: "no NVML library ..."
    bool operator==(const NodeTopology&) const = default;
};

/// Returns the NUMA node of `cpu`; -1 if none has it.
int numa_node_of(const NodeTopology& node, int cpu);

/// Returns the GPUs that this process can compute on: NVIDIA's with a driver or, if none has one,
/// with a render node. The display of a management controller does not count, nor does a GPU that a
/// control group hides.
std::vector<const GpuFacts*> usable_gpus(const NodeTopology& node);

/// Returns the RDMA ports that can carry messages now.
std::vector<const RdmaPort*> active_rdma_ports(const NodeTopology& node);

/// An address of a network interface.
struct HostAddress {
    std::string interface;
    std::string address;  ///< "10.0.0.7"
    std::string network;  ///< "10.0.0.0/24"
    bool operator==(const HostAddress&) const = default;
};

/// An interface that is not used.
struct LeftOutInterface {
    std::string name, why;
    bool operator==(const LeftOutInterface&) const = default;
};

/// All addresses of one node: those that other nodes may use, and the rest.
struct HostAddresses {
    std::vector<HostAddress> usable;
    std::vector<LeftOutInterface> left_out;
};

/// Returns the addresses by which other nodes could reach this one. Left out are loopback,
/// interfaces that are down, bridges of containers and virtual machines, and link-local addresses.
HostAddresses addresses_of(const NodeTopology& node);

/// Returns the networks in which every node has a usable address, sorted.
std::vector<std::string> shared_networks(std::span<const NodeTopology* const> nodes);

/// Returns "10.0.0.0/24" for "10.0.0.7/24", for IPv4 and IPv6; nothing for other texts.
std::optional<std::string> network_of(std::string_view address_with_prefix);

struct NvmlFunctions;

/// The sources of a topology.
struct TopologySource {
    std::filesystem::path root = "/";     ///< a test puts a copy of /proc and /sys there
    const NvmlFunctions* nvml = nullptr;  ///< GPUs are not queried without it
    std::filesystem::path hwloc_xml;  ///< output of `lstopo`, which replaces the CPUs below root
};

/// Reads below `source.root`. Missing facts stay empty, because no file exists on every kernel.
/// Addresses of interfaces are the live system's, and only read if root is "/".
NodeTopology read_topology(const TopologySource& source);

/// Reads this node, with NVML if its library exists.
NodeTopology read_topology();

void describe(Record& record, NodeTopology& facts);  ///< empty and unknown things are left out

/// What serialize() wrote. Errors: E222 naming `origin` (no JSON, a wrong type, an unknown key),
/// E606 naming what contradicts what.
NodeTopology deserialize_topology(std::string_view text, const std::string& origin = "topology");

/// Writes an indented file. Errors: those of files and of deserialize_topology.
void save_topology(const NodeTopology& node, const std::filesystem::path& path);

/// Reads a file of save_topology().
NodeTopology load_topology(const std::filesystem::path& path);

}  // namespace lockstep
