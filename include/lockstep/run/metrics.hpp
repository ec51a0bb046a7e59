// SPDX-License-Identifier: Apache-2.0
/// @file
/// metrics.jsonl: one JSON object for each report. Each step is in it once, even after a resume.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// Appends lines. Rank 0 only.
class MetricsFile {
  public:
    /// Opens or creates `path` (0600) and removes lines after `resumed_step`: an incomplete last
    /// line, and lines at the end whose "step" is larger. Errors: E402.
    MetricsFile(const fs::path& path, std::int64_t resumed_step);

    /// Appends one line in one write. `record` has a "step". Errors: E402, E405.
    void append(const Json& record);

  private:
    fs::path path_;
    UniqueFd file_;
};

}  // namespace lockstep
