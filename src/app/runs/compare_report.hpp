// SPDX-License-Identifier: Apache-2.0
// The output of `lockstep compare` for two runs.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/run/comparison.hpp"
#include "lockstep/run/run_status.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// One of the two runs.
struct ComparedRun {
    RunFigures figures;
    RunStatus status;
    Scatter step{};    ///< seconds of a step
    double batch = 0;  ///< samples of a step; 0: unknown

    double samples_per_s() const { return step.mean > 0 ? batch / step.mean : 0; }
};

/// Parameters of both runs, after the newest step whose checkpoints both have.
struct ComparedBits {
    std::int64_t step = 0;
    std::string first, second;  ///< hashes
    bool are_equal() const { return first == second; }
};

/// A metric of the evaluations of both runs.
struct ComparedFigure {
    std::string name;  ///< "test_accuracy"
    std::optional<CurveGap> at_samples{}, at_updates{};
};

/// Two runs, and their differences.
struct RunComparison {
    ComparedRun first, second;
    std::vector<SettingDifference> settings{};
    std::optional<ComparedBits> bits{};
    std::vector<ComparedFigure> figures{};
};

/// Compares two runs. Errors: those of read_run_figures() and read_run_status().
RunComparison compare_runs(const fs::path& first, const fs::path& second);

/// Returns the verdict in one sentence, then the tables.
std::string comparison_text(const RunComparison& comparison);

/// Returns the same for programs.
Json comparison_json(const RunComparison& comparison);

}  // namespace lockstep
