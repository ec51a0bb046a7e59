// SPDX-License-Identifier: Apache-2.0
// What a site calls its partitions and how it starts ranks: slurm/sites/NAME.toml.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// How ranks get into a container.
enum class ContainerRuntime { none, apptainer, pyxis };

/// A preset. Empty texts, 0 and none: the file does not say.
struct SitePreset {
    std::string name, interface, account, qos, constraint;
    std::string memory;  ///< of each node, as sbatch reads it
    Launcher launcher = Launcher::none;
    ContainerRuntime container_runtime = ContainerRuntime::none;
    std::string partition, gpu_partition, preemptible_partition;
    std::vector<std::string> modules;  ///< for `module load`
    std::int64_t signal_s = 0;         ///< seconds before the limit that the job is told
};

/// Errors: E110 (syntax), E111 (unknown key), E112 (wrong type), E201 and others of read_file().
SitePreset read_site_preset(const std::filesystem::path& path);

}  // namespace lockstep
