// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/comparison.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_status.hpp"
#include "lockstep/run/text_table.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <cmath>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct ComparedRun {
    RunFigures figures;
    RunStatus status;
    Scatter step{};    ///< seconds
    double batch = 0;  ///< samples of a step; 0: not known

    double samples_per_s() const { return step.mean > 0 ? batch / step.mean : 0; }
};

/// Parameters of both, after the newest step whose checkpoints both have.
struct ComparedBits {
    std::int64_t step = 0;
    std::string first, second;  ///< hashes
    bool are_equal() const { return first == second; }
};

/// A figure of the evaluations of both.
struct ComparedFigure {
    std::string name;  ///< "test_accuracy"
    std::optional<CurveGap> at_samples{}, at_updates{};
};

/// Two runs, and what differs.
struct RunComparison {
    ComparedRun first, second;
    std::vector<SettingDifference> settings{};
    std::optional<ComparedBits> bits{};
    std::vector<ComparedFigure> figures{};
};

using Cells = std::vector<std::string>;

std::string root_text(const ComparedRun& run) {
    return printable(run.figures.root.string());
}

bool have_steps(const RunComparison& runs) {
    return runs.first.step.count > 0 && runs.second.step.count > 0;
}

// Samples where both are known to have them, else steps.
double rate_of(const ComparedRun& run, const RunComparison& runs) {
    return runs.first.batch > 0 && runs.second.batch > 0 ? run.samples_per_s() : 1 / run.step.mean;
}

// Seconds of a sample, as far as they scatter.
Scatter per_sample(const ComparedRun& run) {
    const double samples = run.batch > 0 ? run.batch : 1;
    return {run.step.mean / samples, run.step.error / samples, run.step.count};
}

bool differs_in_speed(const RunComparison& runs) {
    return is_beyond_scatter(per_sample(runs.first), per_sample(runs.second));
}

std::string speed_verdict(const RunComparison& runs) {
    if (!have_steps(runs))
        return "speed cannot be compared: one of them has no record of its steps";
    const double ratio = rate_of(runs.second, runs) / rate_of(runs.first, runs);
    return fmt::format("{} is {:.2f} times as fast as {}{} the noise of their steps",
                       root_text(runs.second),
                       ratio,
                       root_text(runs.first),
                       differs_in_speed(runs) ? "; two runs of one command may differ by more than"
                                              : ", which is within");
}

std::string bits_verdict(const RunComparison& runs) {
    if (!runs.bits)
        return "their bits cannot be compared: they have no checkpoint of the same step";
    return fmt::format("after step {} their parameters are {}",
                       runs.bits->step,
                       runs.bits->are_equal() ? "equal, bit for bit" : "not the same");
}

// With other batches, samples and updates part: which of them explains a gap?
std::string batch_verdict(const RunComparison& runs) {
    if (runs.first.batch == runs.second.batch || runs.figures.empty()) return "";
    const ComparedFigure& figure = runs.figures.front();
    if (!figure.at_samples || !figure.at_updates) return "";
    const double samples = std::abs(figure.at_samples->difference());
    const double updates = std::abs(figure.at_updates->difference());
    if (updates < samples / 2)
        return "; their batches differ, and so do the updates made of as many samples: after as "
               "many updates little of the gap is left";
    if (samples < updates / 2)
        return "; their batches differ: after as many samples little of the gap is left";
    return "";
}

std::string verdict_text(const RunComparison& runs) {
    return fmt::format("{}; {}{}", speed_verdict(runs), bits_verdict(runs), batch_verdict(runs));
}

std::string change_text(double first, double second) {
    if (first <= 0) return "";
    constexpr double most_told = 1000;  // more is a division by almost nothing
    const double ratio = second / first;
    if (ratio < 10) return fmt::format("{:+.1f} %", 100 * (ratio - 1));
    return ratio < most_told ? fmt::format("{:.3g} times", ratio) : "over 1000 times";
}

std::string beyond_text(const Scatter& first, const Scatter& second) {
    return is_beyond_scatter(first, second) ? "beyond the steps' scatter"
                                            : "within the steps' scatter";
}

std::string scatter_text(const Scatter& scatter) {
    return scatter.error > 0
               ? fmt::format("{} +-{}", seconds_text(scatter.mean), seconds_text(2 * scatter.error))
               : seconds_text(scatter.mean);
}

Cells scatter_row(const std::string& name, const Scatter& first, const Scatter& second) {
    return {name,
            scatter_text(first),
            scatter_text(second),
            change_text(first.mean, second.mean),
            beyond_text(first, second)};
}

std::vector<Cells> speed_rows(const RunComparison& runs) {
    const auto& [first, second] = std::tie(runs.first, runs.second);
    std::vector<Cells> rows;
    rows.push_back({"ranks",
                    std::to_string(first.figures.ranks.size()),
                    std::to_string(second.figures.ranks.size()),
                    "",
                    ""});
    if (first.batch > 0 && second.batch > 0)
        rows.push_back({"samples/s",
                        grouped(std::llround(first.samples_per_s())),
                        grouped(std::llround(second.samples_per_s())),
                        change_text(first.samples_per_s(), second.samples_per_s()),
                        beyond_text(per_sample(first), per_sample(second))});
    rows.push_back(scatter_row("a step", first.step, second.step));
    for (std::size_t i = 0; i < static_cast<std::size_t>(Phase::count); ++i) {
        const auto phase = static_cast<Phase>(i);
        const Scatter ours = phase_scatter(first.figures, phase);
        const Scatter theirs = phase_scatter(second.figures, phase);
        if (ours.mean >= 1e-7 || theirs.mean >= 1e-7)
            rows.push_back(scatter_row("  " + std::string(phase_name(phase)), ours, theirs));
    }
    return rows;
}

std::string speed_text(const RunComparison& runs) {
    std::vector<Cells> rows{{"", root_text(runs.first), root_text(runs.second), "change", " "}};
    if (have_steps(runs))
        for (Cells& row : speed_rows(runs)) rows.push_back(std::move(row));
    rows.push_back({"goodput",
                    fmt::format("{:.0f} %", 100 * runs.first.status.times.goodput()),
                    fmt::format("{:.0f} %", 100 * runs.second.status.times.goodput()),
                    "",
                    ""});
    return text_table(rows, Align::left, Align::left);
}

std::string value_text(const std::string& value, const std::string& origin) {
    if (value.empty()) return "not given";
    return value + (origin.empty() ? "" : " (" + origin + ")");
}

std::string settings_text(const RunComparison& runs) {
    constexpr const char* kinds[] = {"decides bits", "bits stand on it", ""};
    if (runs.settings.empty()) return "no setting differs\n";
    std::vector<Cells> rows{{"setting", root_text(runs.first), root_text(runs.second), " "}};
    for (const SettingDifference& setting : runs.settings)
        rows.push_back({setting.name,
                        value_text(setting.first, setting.first_origin),
                        value_text(setting.second, setting.second_origin),
                        kinds[static_cast<std::size_t>(setting.kind)]});
    return "settings that differ:\n" + text_table(rows, Align::left, Align::left);
}

void add_gap(std::vector<Cells>& rows,
             const std::string& name,
             const std::optional<CurveGap>& gap,
             const std::string& what) {
    if (!gap) return;
    rows.push_back({name,
                    fmt::format("after {} {}", grouped(std::llround(gap->at)), what),
                    fmt::format("{:.4g}", gap->first),
                    fmt::format("{:.4g}", gap->second),
                    fmt::format("{:+.4g}", gap->difference())});
}

std::string figures_text(const RunComparison& runs) {
    if (runs.figures.empty())
        return "accuracy cannot be compared: they have no evaluation in common\n";
    std::vector<Cells> rows{
        {"test data", " ", root_text(runs.first), root_text(runs.second), "difference"}};
    for (const ComparedFigure& figure : runs.figures) {
        if (runs.first.batch > 0) add_gap(rows, figure.name, figure.at_samples, "samples");
        add_gap(rows, figure.name, figure.at_updates, "updates");
    }
    return text_table(rows, Align::left, Align::left);
}

Json json_of(const Scatter& scatter) {
    return {{"mean_s", scatter.mean}, {"error_s", scatter.error}, {"steps", scatter.count}};
}

Json json_of(const std::optional<CurveGap>& gap) {
    if (!gap) return {};
    return {{"at", gap->at}, {"first", gap->first}, {"second", gap->second}};
}

Json json_of(const ComparedRun& run) {
    Json phases = Json::object();
    for (std::size_t i = 0; i < static_cast<std::size_t>(Phase::count); ++i) {
        const auto phase = static_cast<Phase>(i);
        phases[std::string(phase_name(phase))] = json_of(phase_scatter(run.figures, phase));
    }
    return {{"run", run.figures.root.string()},
            {"ranks", run.figures.ranks.size()},
            {"samples_per_s", run.samples_per_s()},
            {"step", json_of(run.step)},
            {"phases", phases},
            {"goodput", run.status.times.goodput()}};
}

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

Json comparison_json(const RunComparison& comparison) {
    Json settings = Json::array(), figures = Json::array();
    for (const SettingDifference& setting : comparison.settings)
        settings.push_back({{"name", setting.name},
                            {"decides", setting.kind == SettingKind::deciding},
                            {"first", setting.first},
                            {"second", setting.second},
                            {"first_origin", setting.first_origin},
                            {"second_origin", setting.second_origin}});
    for (const ComparedFigure& figure : comparison.figures)
        figures.push_back({{"name", figure.name},
                           {"at_samples", json_of(figure.at_samples)},
                           {"at_updates", json_of(figure.at_updates)}});
    Json json = {{"verdict", verdict_text(comparison)},
                 {"first", json_of(comparison.first)},
                 {"second", json_of(comparison.second)},
                 {"settings", settings},
                 {"figures", figures},
                 {"speed_differs", have_steps(comparison) && differs_in_speed(comparison)}};
    if (comparison.bits)
        json["bits"] = {{"step", comparison.bits->step},
                        {"equal", comparison.bits->are_equal()},
                        {"first", comparison.bits->first},
                        {"second", comparison.bits->second}};
    return json;
}

// Errors: those of read_run_figures() and read_run_status().
RunComparison compare_runs(const fs::path& first, const fs::path& second) {
    RunComparison comparison{.first = read_compared(first), .second = read_compared(second)};
    comparison.settings =
        settings_that_differ(comparison.first.figures.record, comparison.second.figures.record);
    comparison.bits = compare_bits(first, second);
    comparison.figures = compare_figures(comparison.first, comparison.second);
    return comparison;
}

constexpr const char* compare_help =
    R"(Compares two runs: speed of each phase, metrics on the test data, goodput, and settings that differ,
with their origin and whether they decide bits. It also compares the parameters, bit for bit, after
the newest step of which both runs have a checkpoint.

A difference in speed counts if it is more than twice the noise of the steps (+- in the table). The
first step of a start is left out, as it warms caches up. Metrics are compared after equally many
samples and after equally many updates, which differ between batch sizes. A gap after equally many
updates has another cause than the number of updates.

Examples:
  lockstep compare runs/a runs/b
  lockstep compare runs/np1 runs/np4 --json
)";

}  // namespace

Command compare_command() {
    auto json = std::make_shared<bool>(false);
    return {.name = "compare",
            .summary = "compare two runs: speed, accuracy, settings, bits",
            .usage = "lockstep compare RUN RUN [--json]",
            .text = compare_help,
            .table = {json_group(*json)},
            .positionals = 2,
            .run = [json](const Invocation& call) {
                const RunComparison runs = compare_runs(call.positionals[0], call.positionals[1]);
                print_once(*json ? comparison_json(runs).dump(2) + "\n"
                                 : verdict_text(runs) + "\n" + speed_text(runs) +
                                       figures_text(runs) + settings_text(runs));
                return 0;
            }};
}

}  // namespace lockstep
