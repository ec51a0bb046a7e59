// SPDX-License-Identifier: Apache-2.0
// What a start of a run begins with: its ranks, its settings, and the machine that it is on.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/plan/settings.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// What this process has used so far.
struct ProcessTimes {
    double wall_s = 0;       ///< of now_s()
    double processor_s = 0;  ///< of all threads
    double coreless_s = 0;   ///< the first thread was ready to run and had no core; 0: unknown
};

ProcessTimes process_times();

struct Start {
    /// Collective. Errors: E605 where ranks have other settings; those of check_settings() and of
    /// TransformPipeline::parse().
    Start(const TrainSettings& given, const Communicator& world);

    LeafRange leaves() const;  ///< of this rank, once V is settled

    Communicator ranks;
    TrainSettings settings;  ///< V, instruction set and device are filled in as they are settled
    std::string transform;   ///< as it was given; `settings` have it in full
    NodeFacts node = read_node_facts();
    ProcessTimes began = process_times();
    std::vector<std::string> notes;  ///< for the log
};

}  // namespace lockstep
