// SPDX-License-Identifier: Apache-2.0
// The text forms of a run's record and state.
#pragma once

#include "lockstep/run/run_directory.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

class Record;

/// 128 bits from the kernel as 32 hexadecimal digits.
std::string random_run_id();

/// One description of each file, for writing and reading.
void describe(Record& file, RunRecord& run);
void describe(Record& file, RunState& state);

/// Content of run.json.
std::string record_text(const RunRecord& record);

/// Content of state.json, with the time of now.
std::string state_text(const RunState& state, std::int64_t incarnation);

}  // namespace lockstep
