// SPDX-License-Identifier: Apache-2.0
// The options of `lockstep submit`: SLURM's own options as texts, and ours.
#pragma once

#include "options.hpp"
#include "submit/site_preset.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The values of the options. SLURM's options stay texts: they are checked together with the batch
/// script's own, by the same rules.
struct SubmitOptions {
    std::vector<std::string> slurm_values;  ///< by slurm_option_names()
    std::string het_partition, het_nodes, het_node_tasks;
    std::string template_name, site, image;
    Launcher launcher = Launcher::none;                 ///< none: the site's or the template's
    ContainerRuntime runtime = ContainerRuntime::none;  ///< none: the site's, or apptainer
    std::filesystem::path data, run;
    std::int64_t chain = 1;
    std::uint64_t parameters = 0;  ///< parameters of the model; 0: known from its name
    bool exclusive = false;
    bool dry_run = false;
};

/// Returns the long names of SLURM's options.
const std::vector<std::string>& slurm_option_names();

/// Returns the table that fills `options`, which must outlive it.
OptionTable submit_option_table(SubmitOptions& options);

}  // namespace lockstep
