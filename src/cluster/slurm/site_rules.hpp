// SPDX-License-Identifier: Apache-2.0
// What a cluster allows whatever the partition: accounts, QOS, reservations, licences, arrays, jobs
// that are waited for, and the names of nodes and features.
#pragma once

#include "lockstep/cluster/job_request.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// Errors: E533, E534, E538, E542 to E546. Adds to `notes` what the user should know.
void check_site_rules(const JobRequest& request,
                      const SlurmFacts& facts,
                      std::vector<std::string>& notes);

}  // namespace lockstep
