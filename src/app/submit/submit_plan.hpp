// SPDX-License-Identifier: Apache-2.0
// Makes the batch script from options, site and template.
#pragma once

#include "lockstep/cluster/job_request.hpp"

#include "command.hpp"
#include "submit/submit_options.hpp"

#include <filesystem>

namespace lockstep {

/// All facts of a submission before SLURM is asked.
struct SubmitPlan {
    JobTemplate script;                  ///< with all options in place
    ScriptSettings settings{};           ///< the script's settings besides options
    JobRequest request{};                ///< the options by type
    Launcher launcher = Launcher::none;  ///< none: the template starts no ranks
};

/// Returns the folder that holds slurm/: LOCKSTEP_ROOT, this folder, an installation's or a
/// build's. Errors: E539.
fs::path find_root(const Environment& environment);

/// Plans everything that needs no data of SLURM. `call` tells which options were given. Errors:
/// E539 no such template, site or image, those of parse_template(), read_site_preset() and
/// read_request(), E106 options that exclude each other, E537 launchers.
SubmitPlan plan_submit(const SubmitOptions& options, const Invocation& call, const fs::path& root);

}  // namespace lockstep
