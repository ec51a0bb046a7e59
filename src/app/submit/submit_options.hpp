// SPDX-License-Identifier: Apache-2.0
// What `lockstep submit` is told: SLURM's own options as texts, ours, and what a site calls its
// partitions and how it starts ranks: slurm/sites/NAME.toml.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"

#include "options.hpp"

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

/// Errors: those of read_config(), E111 (unknown key), E112 (wrong type).
SitePreset read_site_preset(const std::filesystem::path& path);

/// The values of --help's table. SLURM's options stay texts: the batch script's own are checked
/// with them, by the same rules.
struct SubmitOptions {
    std::vector<std::string> slurm_values;  ///< by slurm_option_names()
    std::string het_partition, het_nodes, het_node_tasks;
    std::string template_name, site, image;
    Launcher launcher = Launcher::none;                 ///< none: the site's or the template's
    ContainerRuntime runtime = ContainerRuntime::none;  ///< none: the site's, or apptainer
    std::filesystem::path data, run;
    std::int64_t chain = 1;
    std::uint64_t parameters = 0;  ///< parameters of the model; 0: known from its name
    bool exclusive = false, dry_run = false;
};

/// Returns the long names of SLURM's options.
const std::vector<std::string>& slurm_option_names();

/// Returns the table that fills `options`, which must outlive it.
OptionTable submit_option_table(SubmitOptions& options);

}  // namespace lockstep
