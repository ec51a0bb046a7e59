// SPDX-License-Identifier: Apache-2.0
#include "placement/path_class.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

using Steps = std::vector<std::string>;

Steps steps_of(const std::string& path) {
    Steps steps;
    std::istringstream parts(path);
    for (std::string step; std::getline(parts, step, '/');) steps.push_back(step);
    return steps;
}

/// `common` steps are shared: the host bridge ("pci0000:16"), a root port, and then each switch's
/// upstream port. Below their last common port a device has one port of that switch above it, and
/// two more for each further switch.
PathKind kind_below(const Steps& a, const Steps& b, std::size_t common) {
    constexpr std::size_t root_port = 2, one_switch = 2;
    if (common < root_port) return PathKind::phb;
    const auto deepest = std::max(a.size(), b.size()) - common;
    return deepest <= one_switch ? PathKind::pix : PathKind::pxb;
}

}  // namespace

std::string path_class_name(const PathClass& path) {
    constexpr std::array<const char*, 7> names{"NV", "PIX", "PXB", "PHB", "NODE", "SYS", "-"};
    if (path.kind == PathKind::nvlink) return fmt::format("NV{}", path.nvlinks);
    return names.at(static_cast<std::size_t>(path.kind));
}

PathClass path_between(const NodeTopology& node, const PciPlace& a, const PciPlace& b) {
    const auto left = steps_of(a.path), right = steps_of(b.path);
    const auto end = std::ranges::mismatch(left, right).in1;
    const auto common = static_cast<std::size_t>(end - left.begin());
    if (common > 0) return {kind_below(left, right, common)};
    if (a.numa_node == b.numa_node && a.numa_node >= 0) return {PathKind::node};
    if (node.numa_nodes.size() < 2) return {PathKind::node};
    const bool is_known = a.numa_node >= 0 && b.numa_node >= 0;
    return {is_known ? PathKind::sys : PathKind::unknown};
}

PathClass path_between(const NodeTopology& node, const GpuFacts& a, const GpuFacts& b) {
    const auto peer = std::ranges::find(a.peers, b.pci.address, &GpuPeer::address);
    if (peer != a.peers.end() && peer->nvlinks > 0) return {PathKind::nvlink, peer->nvlinks};
    return path_between(node, a.pci, b.pci);
}

}  // namespace lockstep
