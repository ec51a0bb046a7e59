// SPDX-License-Identifier: Apache-2.0
// Asks SLURM's commands what a cluster has and allows.
#pragma once

#include "lockstep/cluster/job_request.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// Runs a command of SLURM, three times if the controller does not answer, and returns its output
/// without its own warnings. Errors: E529 not installed, E530 munge, E511.
std::string ask_slurm(const std::vector<std::string>& argv);

/// All that `request` is checked against. MPI types are asked for only where srun starts the ranks.
/// Errors: those of ask_slurm().
SlurmFacts query_slurm(const JobRequest& request, Launcher launcher);

}  // namespace lockstep
