// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include "fact_files.hpp"
#include "topology_readers.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using Groups = std::vector<std::vector<int>>;

std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
    std::vector<int> both;
    std::ranges::set_intersection(a, b, std::back_inserter(both));
    return both;
}

/// The groups that each CPU's own file names, each once, by their first CPU.
template <class FileOf>
Groups groups_by(const std::vector<int>& cpus, FileOf&& file_of) {
    std::set<std::vector<int>> groups;
    for (const int cpu : cpus) {
        auto group = common(cpu_list_in(file_of(cpu)).value_or(std::vector{cpu}), cpus);
        if (!group.empty()) groups.insert(std::move(group));
    }
    return {groups.begin(), groups.end()};
}

/// "index3" of a CPU's caches, or whichever is the last level; "" where no cache is shown.
fs::path last_cache_of(const fs::path& cpu) {
    fs::path last;
    std::int64_t highest = 0;
    for (const auto& cache : entries_of(cpu / "cache")) {
        const auto level = integer_in(cache / "level", 0);
        if (level <= highest || text_of(cache / "type") == "Instruction") continue;
        highest = level;
        last = cache;
    }
    return last;
}

std::uint64_t memory_of(const fs::path& numa_node) {
    // "Node 0 MemTotal:       16384000 kB"
    const auto text = text_of(numa_node / "meminfo");
    const auto key = text.find("MemTotal:");
    if (key == text.npos) return 0;
    const auto begin = text.find_first_not_of(' ', key + 9);
    const auto kib = parse_integer(text.substr(begin, text.find(' ', begin) - begin));
    return kib && *kib > 0 ? static_cast<std::uint64_t>(*kib) * 1024 : 0;
}

std::vector<NumaNode> read_numa_nodes(const fs::path& root, const std::vector<int>& cpus) {
    std::vector<NumaNode> nodes;
    for (const auto& entry : entries_of(root / "sys/devices/system/node")) {
        const auto name = entry.filename().string();
        if (!name.starts_with("node")) continue;
        const auto id = parse_integer(name.substr(4));
        if (!id) continue;
        const auto here = cpu_list_in(entry / "cpulist").value_or(std::vector<int>{});
        nodes.push_back({static_cast<int>(*id), common(here, cpus), memory_of(entry)});
    }
    std::ranges::sort(nodes, {}, &NumaNode::id);
    return nodes;
}

}  // namespace

void read_processors(const fs::path& root, NodeTopology& node) {
    const auto folder = root / "sys/devices/system/cpu";
    const auto cpu_folder = [&](int cpu) { return folder / fmt::format("cpu{}", cpu); };
    node.cpus = cpu_list_in(folder / "online").value_or(node.allowed_cpus);
    node.allowed_cpus = common(node.allowed_cpus, node.cpus);
    node.cores = groups_by(
        node.cpus, [&](int cpu) { return cpu_folder(cpu) / "topology/thread_siblings_list"; });
    node.sockets = groups_by(
        node.cpus, [&](int cpu) { return cpu_folder(cpu) / "topology/core_siblings_list"; });
    node.numa_nodes = read_numa_nodes(root, node.cpus);
    const bool shows_caches =
        !node.cpus.empty() && !last_cache_of(cpu_folder(node.cpus.front())).empty();
    if (shows_caches)
        node.l3_groups = groups_by(
            node.cpus, [&](int cpu) { return last_cache_of(cpu_folder(cpu)) / "shared_cpu_list"; });
    if (!node.allowed_cpus.empty())
        node.governor = text_of(cpu_folder(node.allowed_cpus.front()) / "cpufreq/scaling_governor");
}

}  // namespace lockstep
