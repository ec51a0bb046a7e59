// SPDX-License-Identifier: Apache-2.0
// What a run leaves in its directory, read as a stranger would: by the names and formats it
// promises.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::test {

/// One value a line; a last line that is not whole is left out.
std::vector<Json> json_lines(const fs::path& path);

/// Steps of the training records of metrics.jsonl, in the order of the file.
std::vector<std::int64_t> training_steps(const fs::path& run);

/// The newest step in metrics.jsonl, 0 before the first.
std::int64_t newest_step(const fs::path& run);

/// Of the newest evaluation in metrics.jsonl; -1 before the first.
double last_accuracy(const fs::path& run);

/// "complete, step 100, exit 0": what state.json says.
std::string state_of(const fs::path& run);

/// The hash after "parameters" in what `train` printed; "" if there is none.
std::string printed_hash(const std::string& output);

/// Expects that both folders have files of the same names and bytes.
void expect_same_files(const fs::path& one, const fs::path& other);

/// The step in state.json.
std::int64_t state_step(const fs::path& run);

/// The folder of the checkpoint of `step`.
fs::path checkpoint_of(const fs::path& run, std::int64_t step);

/// The manifest of that.
Json manifest_of(const fs::path& run, std::int64_t step);

/// Damages a file; links to the old one keep its bytes.
void flip_last_byte(const fs::path& file);

/// 1, 2, ..., `last`.
std::vector<std::int64_t> all_steps(std::int64_t last);

}  // namespace lockstep::test
