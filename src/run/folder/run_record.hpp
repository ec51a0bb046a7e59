// SPDX-License-Identifier: Apache-2.0
// The text forms of a run's record and state.
#pragma once

#include "lockstep/run/run_directory.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

class Record;

/// Returns 128 bits from the kernel as 32 hexadecimal digits.
std::string random_run_id();

/// Reads or writes run.json.
void describe(Record& file, RunRecord& run);
void describe(Record& file, RunState& state);

/// Returns the content of run.json.
std::string record_text(const RunRecord& record);

/// Returns the content of state.json, with the present time.
std::string state_text(const RunState& state, std::int64_t incarnation);

}  // namespace lockstep
