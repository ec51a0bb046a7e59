// SPDX-License-Identifier: Apache-2.0
// What mpirun or srun said of starts whose ranks could not say it themselves.
#pragma once

#include "lockstep/observe/run_status.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Whether any of that start were kept.
bool has_launcher_words(const fs::path& run, std::int64_t start);

/// The last lines of a launch after the newest start, `start`, whose ranks did not begin; "" where
/// there was none.
std::string words_of_launch_after(const RunStatus& status, std::int64_t start);

/// The same, and of `start` itself where none of its ranks has a log.
std::string words_without_ranks(const RunStatus& status, std::int64_t start);

}  // namespace lockstep
