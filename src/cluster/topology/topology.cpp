// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/topology.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include "topology/topology_readers.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <span>

#include <arpa/inet.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_in_container(const fs::path& root) {
    std::error_code missing;
    return fs::exists(root / ".dockerenv", missing) ||
           fs::exists(root / "run/.containerenv", missing) ||
           fs::exists(root / "run/systemd/container", missing) ||
           fs::exists(root / ".singularity.d", missing);
}

/// A container may show devices of NUMA nodes that it hides.
void forget_hidden_numa_node(const NodeTopology& node, PciPlace& place) {
    if (std::ranges::find(node.numa_nodes, place.numa_node, &NumaNode::id) == node.numa_nodes.end())
        place.numa_node = -1;
}

void lower(std::string& text) {
    std::ranges::transform(
        text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
}

/// Looks for facts of `node` that contradict each other. Errors: E606 naming `origin` and them.
struct Consistency {
    const NodeTopology& node;
    const std::string& origin;

    template <class... Values>
    void require(bool ok,
                 fmt::format_string<const Values&...> what,
                 const Values&... values) const {
        check(ok, [&] {
            return Error(
                "E606",
                fmt::format("'{}': {}", origin, fmt::format(what, values...)),
                "a plan made from it would not fit any node",
                "correct the file, or write it again with 'lockstep map --save-topology FILE'");
        });
    }

    bool is_known(int cpu) const { return std::ranges::binary_search(node.cpus, cpu); }

    /// No CPU is in two of `groups`, and nothing else is in any.
    std::set<int> check_members(const std::vector<std::vector<int>>& groups,
                                const char* noun) const {
        const std::string all = cpu_list_text(node.cpus);
        std::set<int> seen;
        for (const auto& group : groups)
            for (const int cpu : group) {
                require(is_known(cpu), "CPU {} is in a {}, but the CPUs are {}", cpu, noun, all);
                require(seen.insert(cpu).second, "CPU {} is in two {}s", cpu, noun);
            }
        return seen;
    }

    /// And each is in one.
    void check_groups(const std::vector<std::vector<int>>& groups, const char* noun) const {
        const auto seen = check_members(groups, noun);
        for (const int cpu : node.cpus)
            require(seen.contains(cpu), "CPU {} is in no {}", cpu, noun);
    }

    void check_cpus() const {
        require(!node.cpus.empty(), "there are no CPUs");
        const std::string all = cpu_list_text(node.cpus);
        for (const int cpu : node.allowed_cpus)
            require(is_known(cpu), "CPU {} is allowed, but the CPUs are {}", cpu, all);
        std::vector<std::vector<int>> by_numa;
        std::set<int> ids;
        for (const auto& numa : node.numa_nodes) {
            by_numa.push_back(numa.cpus);
            require(ids.insert(numa.id).second, "NUMA node {} is there twice", numa.id);
        }
        check_groups(node.cores, "core");
        check_groups(node.l3_groups, "cache");
        check_groups(node.sockets, "socket");
        check_members(by_numa, "NUMA node");  // containers hide some of them
    }

    void check_device(const PciPlace& place, const std::string& name) const {
        const int numa = place.numa_node;
        const bool is_there = std::ranges::count(node.numa_nodes, numa, &NumaNode::id) > 0;
        require(numa < 0 || is_there, "{} is on NUMA node {}, which is missing", name, numa);
    }

    void check_devices() const {
        std::set<std::string> addresses, uuids, ports;
        for (const auto& gpu : node.gpus) {
            const std::string& address = gpu.pci.address;
            check_device(gpu.pci, "GPU " + address);
            const bool is_new = !address.empty() && addresses.insert(address).second;
            require(is_new, "two GPUs have the address '{}'", address);
            const bool is_other = gpu.uuid.empty() || uuids.insert(gpu.uuid).second;
            require(is_other, "two GPUs have the UUID '{}'", gpu.uuid);
        }
        for (const auto& port : node.rdma_ports) {
            check_device(port.pci, port.name());
            require(ports.insert(port.name()).second, "port {} is there twice", port.name());
        }
    }
};

/// Fills in missing facts: every CPU is allowed and is a core of its own, and all are in one
/// socket, one NUMA node and one cache. Addresses become lower case.
void complete_topology(NodeTopology& node) {
    if (node.allowed_cpus.empty()) node.allowed_cpus = node.cpus;
    if (node.cores.empty())
        for (const int cpu : node.cpus) node.cores.push_back({cpu});
    if (node.sockets.empty()) node.sockets = {node.cpus};
    if (node.numa_nodes.empty()) node.numa_nodes = {{0, node.cpus, node.memory_bytes}};
    if (node.l3_groups.empty())
        for (const auto& numa : node.numa_nodes)
            if (!numa.cpus.empty()) node.l3_groups.push_back(numa.cpus);
    for (auto& gpu : node.gpus) lower(gpu.pci.address);
    for (auto& port : node.rdma_ports) lower(port.pci.address);
}

bool begins_with_any(const std::string& name, std::initializer_list<const char*> prefixes) {
    return std::ranges::any_of(prefixes, [&](const char* each) { return name.starts_with(each); });
}

bool is_link_local(const std::string& address) {
    return address.starts_with("169.254.") || address.starts_with("fe80:");
}

/// Why other nodes cannot or should not use this interface; "" if they may.
std::string reason_against(const NetworkInterface& interface) {
    const InterfaceKind kind = interface.kind;
    const std::string& name = interface.name;
    if (kind == InterfaceKind::loopback || name == "lo") return "loopback";
    if (kind == InterfaceKind::docker || begins_with_any(name, {"docker", "br-", "cni", "podman"}))
        return "a bridge for containers";
    if (begins_with_any(name, {"virbr", "vnet", "lxcbr", "lxdbr", "vmnet", "vboxnet"}))
        return "a bridge for virtual machines";
    if (kind == InterfaceKind::tunnel || begins_with_any(name, {"tun", "tap", "wg", "flannel"}))
        return "a tunnel";
    if (kind == InterfaceKind::dummy || begins_with_any(name, {"dummy", "ifb"}))
        return "no network behind it";
    if (interface.state == "down") return "down";
    if (interface.addresses.empty()) return "without address";
    if (std::ranges::all_of(interface.addresses, is_link_local)) return "link-local addresses only";
    return "";
}

std::string masked(int family, std::span<unsigned char> bytes, int prefix) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const int kept = std::clamp(prefix - 8 * static_cast<int>(i), 0, 8);
        bytes[i] = static_cast<unsigned char>(bytes[i] & (0xff00u >> kept));
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(family, bytes.data(), text.data(), text.size());
    return fmt::format("{}/{}", text.data(), prefix);
}

}  // namespace

std::string RdmaPort::name() const {
    return fmt::format("{}:{}", device, port);
}

std::string_view interface_kind_name(InterfaceKind kind) {
    constexpr std::array<std::string_view, 11> names{"ethernet",
                                                     "infiniband",
                                                     "loopback",
                                                     "bridge",
                                                     "docker",
                                                     "bond",
                                                     "vlan",
                                                     "tunnel",
                                                     "veth",
                                                     "dummy",
                                                     "other"};
    return names.at(static_cast<std::size_t>(kind));
}

int numa_node_of(const NodeTopology& node, int cpu) {
    const auto found = std::ranges::find_if(node.numa_nodes, [&](const NumaNode& numa) {
        return std::ranges::binary_search(numa.cpus, cpu);
    });
    return found == node.numa_nodes.end() ? -1 : found->id;
}

std::vector<const RdmaPort*> active_rdma_ports(const NodeTopology& node) {
    std::vector<const RdmaPort*> active;
    for (const RdmaPort& port : node.rdma_ports)
        if (port.is_up()) active.push_back(&port);
    return active;
}

std::vector<const GpuFacts*> usable_gpus(const NodeTopology& node) {
    // Where a control group hides GPUs from this process, their render nodes still show in sysfs.
    const bool has_any_driver = std::ranges::any_of(node.gpus, &GpuFacts::has_driver);
    std::vector<const GpuFacts*> usable;
    for (const auto& gpu : node.gpus) {
        const bool is_nvidia = gpu.pci.vendor == "0x10de";
        const bool works = has_any_driver ? gpu.has_driver : gpu.has_render_node;
        if (is_nvidia && works) usable.push_back(&gpu);
    }
    return usable;
}

NodeTopology read_topology(const TopologySource& source) {
    const auto& root = source.root;
    NodeTopology node{read_node_facts(root)};
    node.is_container = is_in_container(root);
    read_processors(source, node);
    node.gpus = read_pci_gpus(root);
    add_nvml_facts(source.nvml, node);
    node.rdma_ports = read_rdma_ports(root);
    node.interfaces = read_interfaces(root);
    if (root == "/") add_live_addresses(node.interfaces);
    node.limits = read_resource_limits(root);
    node.kernel = read_kernel_facts(root);
    complete_topology(node);
    for (auto& gpu : node.gpus) forget_hidden_numa_node(node, gpu.pci);
    for (auto& port : node.rdma_ports) forget_hidden_numa_node(node, port.pci);
    return node;
}

std::optional<std::string> network_of(std::string_view address_with_prefix) {
    const auto slash = address_with_prefix.find('/');
    if (slash == address_with_prefix.npos) return {};
    const std::string address(address_with_prefix.substr(0, slash));
    const auto prefix = parse_integer(address_with_prefix.substr(slash + 1));
    const int family = address.find(':') == address.npos ? AF_INET : AF_INET6;
    std::array<unsigned char, 16> bytes{};
    const std::size_t size = family == AF_INET ? 4 : 16;
    if (!prefix || *prefix < 0 || *prefix > static_cast<std::int64_t>(8 * size)) return {};
    if (::inet_pton(family, address.c_str(), bytes.data()) != 1) return {};
    return masked(family, std::span(bytes).first(size), static_cast<int>(*prefix));
}

HostAddresses addresses_of(const NodeTopology& node) {
    HostAddresses chosen;
    for (const NetworkInterface& interface : node.interfaces) {
        if (const auto reason = reason_against(interface); !reason.empty()) {
            chosen.left_out.push_back({interface.name, reason});
            continue;
        }
        for (const std::string& address : interface.addresses) {
            const auto network = network_of(address);
            if (!network || is_link_local(address)) continue;
            chosen.usable.push_back(
                {interface.name, address.substr(0, address.find('/')), *network});
        }
    }
    return chosen;
}

std::vector<std::string> shared_networks(std::span<const NodeTopology* const> nodes) {
    std::map<std::string, std::size_t> seen;
    for (const NodeTopology* node : nodes) {
        std::set<std::string> here;
        for (const HostAddress& each : addresses_of(*node).usable) here.insert(each.network);
        for (const std::string& network : here) ++seen[network];
    }
    std::vector<std::string> shared;
    for (const auto& [network, count] : seen)
        if (count == nodes.size()) shared.push_back(network);
    return shared;
}

NodeTopology deserialize_topology(std::string_view text, const std::string& origin) {
    auto node = deserialize<NodeTopology>(text, origin);
    complete_topology(node);
    const Consistency consistency{node, origin};
    consistency.check_cpus();
    consistency.check_devices();
    return node;
}

void save_topology(const NodeTopology& node, const fs::path& path) {
    const auto text = json_of_record(node).dump(1);
    write_named_file(path, text + "\n");
}

NodeTopology load_topology(const fs::path& path) {
    return deserialize_topology(read_file(path), path.string());
}

}  // namespace lockstep
