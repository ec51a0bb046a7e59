// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "runs/compare_report.hpp"
#include "runs/run_clues.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

namespace lockstep {
namespace {

ComparedRun read_compared(const fs::path& root) {
    ComparedRun run{.figures = {}, .status = status_of_run(root, StatusDepth::history)};
    run.figures = read_run_figures(root);
    run.step = step_scatter(run.figures);
    run.batch = run.figures.record.deciding.value("batch", 0.0);
    return run;
}

std::map<std::int64_t, fs::path> checkpoints_by_step(const fs::path& root) {
    std::map<std::int64_t, fs::path> checkpoints;
    for (const CheckpointInfo& info : list_checkpoints(RunPaths{root}.checkpoints()))
        checkpoints[info.step] = info.path;
    return checkpoints;
}

// Damaged ones, and those of versions that kept no hash, say nothing.
std::string hash_of(const fs::path& checkpoint) {
    try {
        return read_checkpoint_state(checkpoint).parameter_hash;
    } catch (const Error&) {
        return "";
    }
}

std::optional<ComparedBits> compare_bits(const fs::path& first, const fs::path& second) {
    const auto ours = checkpoints_by_step(first);
    const auto theirs = checkpoints_by_step(second);
    for (const auto& [step, path] : ours | std::views::reverse) {
        const auto other = theirs.find(step);
        if (other == theirs.end()) continue;
        ComparedBits bits{step, hash_of(path), hash_of(other->second)};
        if (!bits.first.empty() && !bits.second.empty()) return bits;
    }
    return {};
}

std::vector<ComparedFigure> compare_figures(const ComparedRun& first, const ComparedRun& second) {
    std::set<std::string> names;
    for (const EvaluationMetrics& evaluation : first.figures.evaluations)
        for (const auto& [name, value] : evaluation.figures) names.insert(name);
    std::vector<ComparedFigure> figures;
    for (const std::string& name : names) {
        const auto gap = [&](double samples, double other_samples) {
            return curve_gap(evaluation_curve(first.figures, name, samples),
                             evaluation_curve(second.figures, name, other_samples));
        };
        ComparedFigure figure{name, gap(first.batch, second.batch), gap(1, 1)};
        if (figure.at_samples || figure.at_updates) figures.push_back(std::move(figure));
    }
    return figures;
}

}  // namespace

RunComparison compare_runs(const fs::path& first, const fs::path& second) {
    RunComparison comparison{.first = read_compared(first), .second = read_compared(second)};
    comparison.settings =
        settings_that_differ(comparison.first.figures.record, comparison.second.figures.record);
    comparison.bits = compare_bits(first, second);
    comparison.figures = compare_figures(comparison.first, comparison.second);
    return comparison;
}

}  // namespace lockstep
