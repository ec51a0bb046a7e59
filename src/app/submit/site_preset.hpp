// SPDX-License-Identifier: Apache-2.0
// A site's names of partitions and its launcher: slurm/sites/NAME.toml.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The way in which ranks enter a container.
enum class ContainerRuntime { none, apptainer, pyxis };

/// A preset. Empty texts, 0 and none: not in the file.
struct SitePreset {
    std::string name, interface, account, qos, constraint;
    std::string memory;  ///< memory of each node, in sbatch's form
    Launcher launcher = Launcher::none;
    ContainerRuntime container_runtime = ContainerRuntime::none;
    std::string partition, gpu_partition, preemptible_partition;
    std::vector<std::string> modules;  ///< for `module load`
    std::int64_t signal_s = 0;         ///< time before the limit at which the job gets a signal
};

/// Reads a preset. Errors: E110 (syntax), E111 (unknown key), E112 (wrong type), E201 and others of
/// read_file().
SitePreset read_site_preset(const std::filesystem::path& path);

}  // namespace lockstep
