// SPDX-License-Identifier: Apache-2.0
// Values that facts of nodes, ranks and plans have in their describe().
#pragma once

#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/record.hpp"

#include <vector>

namespace lockstep {

/// CPUs or nodes of memory as the kernel writes them: "0-3,8"; none are left out.
void cpu_list(Record& record, const char* key, std::vector<int>& cpus);
void cpu_lists(Record& record, const char* key, std::vector<std::vector<int>>& lists);

/// Reads or writes a level by its name; the lowest level is left out.
void instruction_set(Record& record, const char* key, InstructionSet& level);

}  // namespace lockstep
