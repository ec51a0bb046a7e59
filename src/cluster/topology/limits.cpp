// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include "fact_files.hpp"
#include "topology_readers.hpp"

#include <algorithm>
#include <sstream>

#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

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

}  // namespace lockstep
