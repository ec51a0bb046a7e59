// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/control_group.hpp"

#include "fact_files.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

/// Names of the processes whose children ranks are, as the kernel cuts them.
constexpr std::array launchers{"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};

}  // namespace

std::vector<int> launcher_cpus(const std::filesystem::path& root) {
    const auto parent = value_of(text_of(root / "proc/self/status"), "PPid");
    if (parent.empty()) return {};
    const auto above = root / "proc" / parent;
    if (std::ranges::find(launchers, text_of(above / "comm")) == launchers.end()) return {};
    const auto cpus = value_of(text_of(above / "status"), "Cpus_allowed_list");
    return parse_cpu_list(cpus).value_or(std::vector<int>{});
}

}  // namespace lockstep
