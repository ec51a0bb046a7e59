// SPDX-License-Identifier: Apache-2.0
// Reads cores, caches, sockets and NUMA nodes from hwloc, which Open MPI uses as well.
//
// All other parts of hwloc are switched off, because they cost time at every start of a rank: its
// other sources (x86's cpuid binds the thread to each CPU in turn), devices, distances, and its
// plugins, which bring OpenCL and X11 into the process (3 to 7 ms against 1 ms for all the rest).
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"

#include "topology/topology_readers.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <hwloc.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using Groups = std::vector<std::vector<int>>;
using HwlocTopology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
    std::vector<int> both;
    std::ranges::set_intersection(a, b, std::back_inserter(both));
    return both;
}

/// Sets a variable of the environment as long as this lives.
class ScopedVariable {
  public:
    ScopedVariable(const char* name, const std::string& value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        ::setenv(name, value.c_str(), 1);
    }
    ~ScopedVariable() {
        if (before_)
            ::setenv(name_, before_->c_str(), 1);
        else
            ::unsetenv(name_);
    }
    ScopedVariable(const ScopedVariable&) = delete;
    ScopedVariable& operator=(const ScopedVariable&) = delete;

  private:
    const char* name_;
    std::optional<std::string> before_;
};

/// What hwloc takes from the environment alone: a root, and no folder of plugins. The live system's
/// environment is changed only while no other thread can be reading it.
struct HwlocEnvironment {
    explicit HwlocEnvironment(const fs::path& root) {
        if (root != "/") below.emplace("HWLOC_FSROOT", root.string());
        if (root != "/" || entries_of("/proc/self/task").size() == 1)
            plugins.emplace("HWLOC_PLUGINS_PATH", "/nonexistent");
    }
    std::optional<ScopedVariable> below, plugins;
};

Error unreadable(const fs::path& xml) {
    return Error("E222",
                 fmt::format("'{}': hwloc cannot read it", xml.string()),
                 "it is missing, or not a topology of hwloc",
                 "write it on the node: lstopo node.xml");
}

/// Null where hwloc finds nothing.
HwlocTopology load_hwloc(const TopologySource& source) {
    const HwlocEnvironment environment(source.root);
    hwloc_topology* made = nullptr;
    if (hwloc_topology_init(&made) != 0) return {nullptr, hwloc_topology_destroy};
    HwlocTopology topology(made, hwloc_topology_destroy);
    if (const auto& xml = source.hwloc_xml; !xml.empty())
        check(hwloc_topology_set_xml(made, xml.c_str()) == 0, [&] { return unreadable(xml); });
    hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_icache_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(made, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_flags(made,
                             HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED |
                                 HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING |
                                 HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                                 HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
    if (hwloc_topology_load(made) == 0) return topology;
    check(source.hwloc_xml.empty(), [&] { return unreadable(source.hwloc_xml); });
    return {nullptr, hwloc_topology_destroy};
}

std::vector<int> cpus_of(hwloc_const_cpuset_t set) {
    std::vector<int> cpus;
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
        cpus.push_back(cpu);
    return cpus;
}

/// The outermost object around `cpu` that `is_wanted`; null if there is none.
template <class IsWanted>
hwloc_obj_t outermost(hwloc_obj_t cpu, IsWanted&& is_wanted) {
    hwloc_obj_t found = nullptr;
    for (hwloc_obj_t around = cpu->parent; around != nullptr; around = around->parent)
        if (is_wanted(around->type)) found = around;
    return found;
}

/// What `is_wanted` holds together, each once, by their first CPU; a CPU outside all of them (a
/// small core without the last level of cache) is alone. None where nothing of the kind is shown.
template <class IsWanted>
Groups groups_by(hwloc_topology* topology, IsWanted&& is_wanted) {
    std::set<std::vector<int>> groups;
    bool is_shown = false;
    for (hwloc_obj_t cpu = nullptr;
         (cpu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, cpu)) != nullptr;) {
        const auto group = outermost(cpu, is_wanted);
        is_shown = is_shown || group != nullptr;
        groups.insert(cpus_of(group != nullptr ? group->cpuset : cpu->cpuset));
    }
    if (!is_shown) return {};
    return {groups.begin(), groups.end()};
}

/// By id. A node without CPUs of its own (CXL, HBM) comes from hwloc with its neighbours': they
/// stay with the first that has them.
std::vector<NumaNode> numa_nodes_of(hwloc_topology* topology) {
    std::vector<NumaNode> nodes;
    for (hwloc_obj_t numa = nullptr;
         (numa = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, numa)) != nullptr;)
        nodes.push_back({static_cast<int>(numa->os_index),
                         cpus_of(numa->cpuset),
                         numa->attr->numanode.local_memory});
    std::ranges::sort(nodes, {}, &NumaNode::id);
    std::set<int> taken;
    for (auto& node : nodes)
        std::erase_if(node.cpus, [&](int cpu) { return !taken.insert(cpu).second; });
    return nodes;
}

}  // namespace

void read_processors(const TopologySource& source, NodeTopology& node) {
    const auto folder = source.root / "sys/devices/system/cpu";
    std::error_code missing;
    // Without sysfs hwloc would count this machine's CPUs from 0, whichever are allowed.
    const bool can_tell = !source.hwloc_xml.empty() || fs::exists(folder, missing);
    const auto topology =
        can_tell ? load_hwloc(source) : HwlocTopology(nullptr, hwloc_topology_destroy);
    node.cpus = node.allowed_cpus;
    if (topology != nullptr) {
        node.cpus = cpus_of(hwloc_topology_get_topology_cpuset(topology.get()));
        node.cores = groups_by(topology.get(), [](auto type) { return type == HWLOC_OBJ_CORE; });
        node.l3_groups = groups_by(topology.get(),
                                   [](auto type) { return hwloc_obj_type_is_dcache(type) != 0; });
        node.sockets =
            groups_by(topology.get(), [](auto type) { return type == HWLOC_OBJ_PACKAGE; });
        node.numa_nodes = numa_nodes_of(topology.get());
    }
    node.allowed_cpus = common(node.allowed_cpus, node.cpus);
    if (!node.allowed_cpus.empty())
        node.governor = text_of(folder / fmt::format("cpu{}", node.allowed_cpus.front()) /
                                "cpufreq/scaling_governor");
}

}  // namespace lockstep
