// SPDX-License-Identifier: Apache-2.0
// Reads a node from small files of the kernel, and its cores, caches, sockets and NUMA nodes from
// hwloc, which Open MPI uses as well.
//
// All other parts of hwloc are switched off, because they cost time at every start of a rank: its
// other sources (x86's cpuid binds the thread to each CPU in turn), devices, distances, and its
// plugins, which bring OpenCL and X11 into the process (3 to 7 ms against 1 ms for all the rest).
#include "lockstep/cluster/node_facts.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "topology/topology_readers.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct ArmModel {
    std::string_view maker, part, name;
};
/// Numbers of servers' processors, as in Linux's arch/arm64/include/asm/cputype.h.
constexpr std::array arm_models{ArmModel{"0x41", "0xd0c", "Arm Neoverse N1"},
                                ArmModel{"0x41", "0xd40", "Arm Neoverse V1"},
                                ArmModel{"0x41", "0xd49", "Arm Neoverse N2"},
                                ArmModel{"0x41", "0xd4f", "Arm Neoverse V2"},
                                ArmModel{"0x41", "0xd83", "Arm Neoverse V3"},
                                ArmModel{"0x46", "0x001", "Fujitsu A64FX"},
                                ArmModel{"0xc0", "0xac3", "Ampere-1"},
                                ArmModel{"0xc0", "0xac4", "Ampere-1A"}};

std::uint64_t total_memory(const fs::path& root) {
    const auto text = value_of(text_of(root / "proc/meminfo"), "MemTotal");
    const auto kib = parse_integer(std::string_view(text).substr(0, text.find(' ')));
    return kib && *kib > 0 ? static_cast<std::uint64_t>(*kib) * 1024 : 0;
}

/// Arm's kernel writes numbers where that of x86 writes a name.
std::string processor_name(const std::string& info) {
    const std::string name = value_of(info, "model name");
    const std::string maker = value_of(info, "CPU implementer"), part = value_of(info, "CPU part");
    if (!name.empty() || maker.empty()) return name;
    const auto found = std::ranges::find_if(arm_models, [&](const ArmModel& model) {
        return model.maker == maker && model.part == part;
    });
    return found != arm_models.end() ? std::string(found->name)
                                     : fmt::format("Arm processor {} of maker {}", part, maker);
}

/// Returns the first list found on the way up; the kernel has already restricted it to those above.
std::vector<int> first_list(const std::vector<fs::path>& folders,
                            std::initializer_list<const char*> names) {
    for (const auto& folder : folders)
        for (const char* name : names)
            if (const auto list = cpu_list_in(folder / name)) return *list;
    return {};
}

/// "50000 100000" is half a CPU; "max 100000" is no quota.
std::optional<double> quota_in(const fs::path& folder, int version) {
    std::string text = text_of(folder / "cpu.max");
    if (version == 1)
        text = text_of(folder / "cpu.cfs_quota_us") + " " + text_of(folder / "cpu.cfs_period_us");
    double quota = 0, period = 0;
    std::istringstream(text) >> quota >> period;
    if (quota <= 0 || period <= 0) return {};
    return quota / period;
}

void add_cpuset(const std::vector<fs::path>& folders, ControlGroupFacts& facts) {
    facts.cpus =
        first_list(folders, {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"});
    facts.memory_nodes =
        first_list(folders, {"cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems"});
}

void add_quota(const std::vector<fs::path>& folders, int version, ControlGroupFacts& facts) {
    for (const auto& folder : folders) {
        const auto quota = quota_in(folder, version);
        if (quota) facts.cpu_quota = std::min(facts.cpu_quota.value_or(*quota), *quota);
        std::istringstream words(text_of(folder / "cpu.stat"));
        std::uint64_t value = 0;
        for (std::string key; words >> key >> value;)
            if (key == "nr_throttled")
                facts.throttled_periods = std::max(facts.throttled_periods, value);
    }
}

ControlGroupFacts read_control_group(const fs::path& root) {
    ControlGroupFacts facts;
    for (const auto& group : control_groups(root)) {
        if (facts.version == 0) facts.version = group.version;
        // A version 1 system often shows an empty version 2 group beside it.
        if (group.version != facts.version && group.version == 2) continue;
        if (group.has("cpuset")) add_cpuset(folders_of(group, "cpuset", root), facts);
        if (group.has("cpu")) add_quota(folders_of(group, "cpu", root), group.version, facts);
    }
    facts.memory_limit_bytes = control_group_memory_limit(root);
    return facts;
}

/// "Max open files            1024                 4096                 files"
std::optional<std::uint64_t> soft_limit(const std::string& text, const std::string& name) {
    const auto at = text.find(name);
    if (at == text.npos) return {};
    std::istringstream rest(text.substr(at + name.size()));
    std::string word;
    rest >> word;
    const auto value = parse_integer(word);
    if (!value || *value < 0) return {};
    return static_cast<std::uint64_t>(*value);
}

/// The first word that looks like a version: "550.54.15".
std::string driver_version(const std::string& text) {
    std::istringstream words(text.substr(0, text.find('\n')));
    for (std::string word; words >> word;) {
        const bool is_number = word.find_first_not_of("0123456789.") == word.npos;
        if (is_number && word.find('.') != word.npos) return word;
    }
    return "";
}

constexpr std::int64_t largest_cpu = 1 << 16;

bool add_range(std::string_view range, std::set<int>& cpus) {
    const auto dash = range.find('-');
    const auto first = parse_integer(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_integer(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > largest_cpu) return false;
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.insert(static_cast<int>(cpu));
    return true;
}

using Groups = std::vector<std::vector<int>>;
using HwlocTopology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

/// What hwloc takes from the environment alone: a root, and no folder of plugins. The live system's
/// environment is changed only while no other thread can be reading it, and set back at the end.
class HwlocEnvironment {
  public:
    explicit HwlocEnvironment(const fs::path& root) {
        if (root != "/") set("HWLOC_FSROOT", root.string());
        if (root != "/" || entries_of("/proc/self/task").size() == 1)
            set("HWLOC_PLUGINS_PATH", "/nonexistent");
    }
    ~HwlocEnvironment() {
        for (const auto& [name, value] : before_)
            if (value)
                ::setenv(name, value->c_str(), 1);
            else
                ::unsetenv(name);
    }
    HwlocEnvironment& operator=(HwlocEnvironment&&) = delete;

  private:
    void set(const char* name, const std::string& value) {
        const char* before = std::getenv(name);
        before_[name] = before == nullptr ? std::nullopt : std::optional<std::string>(before);
        ::setenv(name, value.c_str(), 1);
    }
    std::map<const char*, std::optional<std::string>> before_;
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

std::optional<std::uint64_t> NodeFacts::memory_limit_bytes() const {
    const auto limit = control_group.memory_limit_bytes;
    return limit && (memory_bytes == 0 || *limit < memory_bytes) ? limit : std::nullopt;
}

NodeFacts read_node_facts(const fs::path& root) {
    const auto status = text_of(root / "proc/self/status");
    const auto allowed = [&](std::string_view key) {
        return parse_cpu_list(value_of(status, key)).value_or(std::vector<int>{});
    };
    NodeFacts facts;
    facts.host = text_of(root / "proc/sys/kernel/hostname");
    facts.boot_id = text_of(root / "proc/sys/kernel/random/boot_id");
    facts.allowed_cpus = allowed("Cpus_allowed_list");
    facts.allowed_memory_nodes = allowed("Mems_allowed_list");
    facts.memory_bytes = total_memory(root);
    facts.control_group = read_control_group(root);
    const auto info = text_of(root / "proc/cpuinfo");
    facts.cpu_model = processor_name(info);
    facts.instruction_set = best_instruction_set(value_of(info, "flags"));
    return facts;
}

ResourceLimits read_resource_limits(const fs::path& root) {
    const auto text = text_of(root / "proc/self/limits");
    return {soft_limit(text, "Max locked memory"),
            soft_limit(text, "Max open files"),
            soft_limit(text, "Max stack size"),
            soft_limit(text, "Max processes")};
}

std::string nvidia_driver_version(const fs::path& root) {
    return driver_version(text_of(root / "proc/driver/nvidia/version"));
}

KernelFacts read_kernel_facts(const fs::path& root) {
    const auto driver = text_of(root / "proc/driver/nvidia/version");
    std::error_code missing;
    KernelFacts facts;
    facts.release = text_of(root / "proc/sys/kernel/osrelease");
    facts.command_line = text_of(root / "proc/cmdline");
    facts.has_iommu = !entries_of(root / "sys/class/iommu").empty();
    facts.nvidia_driver = nvidia_driver_version(root);
    facts.nvidia_is_open = driver.find("Open Kernel Module") != driver.npos;
    facts.has_nvidia_peermem = fs::exists(root / "sys/module/nvidia_peermem", missing);
    facts.has_imex_channel = std::ranges::any_of(
        entries_of(root / "dev/nvidia-caps-imex-channels"),
        [](const fs::path& path) { return ::access(path.c_str(), R_OK | W_OK) == 0; });
    facts.ptrace_scope =
        static_cast<int>(integer_in(root / "proc/sys/kernel/yama/ptrace_scope", 0));
    return facts;
}

std::string value_of(const std::string& text, std::string_view key) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const auto colon = line.find(':');
        if (colon == line.npos || !line.starts_with(key)) continue;
        if (line.find_last_not_of(" \t", colon - 1) + 1 != key.size()) continue;
        const auto begin = line.find_first_not_of(" \t", colon + 1);
        return begin == line.npos ? "" : line.substr(begin);
    }
    return "";
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory) {
    std::error_code missing;
    std::vector<std::filesystem::path> entries;
    for (const auto& entry : std::filesystem::directory_iterator(directory, missing)) {
        entries.push_back(entry.path());
    }
    std::ranges::sort(entries);
    return entries;
}

std::optional<std::vector<int>> cpu_list_in(const std::filesystem::path& file) {
    const auto text = text_of(file);
    if (text.empty()) return {};
    return parse_cpu_list(text);
}

std::int64_t integer_in(const std::filesystem::path& file, std::int64_t otherwise) {
    return parse_integer(text_of(file)).value_or(otherwise);
}

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
    std::set<int> cpus;
    while (!text.empty()) {
        const auto comma = text.find(',');
        if (!add_range(text.substr(0, comma), cpus)) return {};
        text = comma == text.npos ? std::string_view{} : text.substr(comma + 1);
    }
    return std::vector<int>(cpus.begin(), cpus.end());
}

std::string cpu_list_text(const std::vector<int>& cpus) {
    return cpus.empty() ? "-" : fold_ranks(cpus);
}

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
    std::erase_if(node.allowed_cpus,
                  [&](int cpu) { return !std::ranges::binary_search(node.cpus, cpu); });
    if (!node.allowed_cpus.empty())
        node.governor = text_of(folder / fmt::format("cpu{}", node.allowed_cpus.front()) /
                                "cpufreq/scaling_governor");
}

}  // namespace lockstep
