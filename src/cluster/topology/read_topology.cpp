// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/nvml.hpp"

#include "topology_check.hpp"
#include "topology_readers.hpp"

#include <algorithm>

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

}  // namespace

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

NodeTopology read_topology() {
    const NvmlLibrary library;
    NodeTopology node = read_topology({"/", library.functions()});
    if (!node.gpus.empty() && library.functions() == nullptr)
        node.notes.push_back(library.why_not());
    return node;
}

}  // namespace lockstep
