// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/metrics_export.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Reports and evaluations in order of steps, an evaluation behind the report of its step.
std::vector<Json> rows_of(const RunFigures& run) {
    std::vector<Json> rows;
    const auto add = [&](std::string_view kind, const auto& record) {
        Json row = Json::object();
        row["kind"] = kind;
        row.update(json_of_record(record));
        rows.push_back(std::move(row));
    };
    for (const StepsEvent& report : run.reports) add("report", report);
    for (const EvaluationMetrics& evaluation : run.evaluations) add("evaluation", evaluation);
    std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) {
        return a.at("step").get<std::int64_t>() < b.at("step").get<std::int64_t>();
    });
    return rows;
}

using Cells = std::vector<std::pair<std::string, std::string>>;  ///< column, text

std::string csv_text(const Json& value) {
    if (value.is_null()) return "";
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (text.find_first_of(",\"\r\n") == text.npos) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + "\"";
}

void add_cells(Cells& cells, const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
        if (value.is_object())
            add_cells(cells, value, prefix + key + ".");
        else
            cells.emplace_back(prefix + key, csv_text(value));
    }
}

/// Names of columns, in the order in which rows have them first.
std::vector<std::string> columns_of(std::span<const Cells> rows) {
    std::vector<std::string> columns;
    std::set<std::string> known;
    for (const Cells& row : rows)
        for (const auto& [column, text] : row)
            if (known.insert(column).second) columns.push_back(column);
    return columns;
}

/// What stands between the quotes of a label.
std::string label(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '\\' || c == '"') escaped += '\\';
        escaped += c == '\n' ? "\\n" : std::string(1, c);
    }
    return escaped;
}

std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
    return fmt::format("{}", value);
}

/// Families of gauges, each with its help in front.
class Exposition {
  public:
    explicit Exposition(const RunFigures& run) : run_(label(run.root.string())) {}

    void begin(std::string_view name, std::string_view help) {
        name_ = fmt::format("lockstep_{}", name);
        text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name_, help);
    }

    void add(double value, const std::string& more_labels = "") {
        text_ += fmt::format("{}{{run=\"{}\"{}}} {}\n", name_, run_, more_labels, number(value));
    }

    void add(std::string_view name, std::string_view help, double value) {
        begin(name, help);
        add(value);
    }

    const std::string& text() const { return text_; }

  private:
    std::string run_, name_, text_;
};

void add_report(Exposition& out, const StepsEvent& newest) {
    const StepReport& report = newest.report;
    out.add("step", "Newest step that was reported.", static_cast<double>(report.step));
    out.add("epoch", "Epochs done.", static_cast<double>(report.epoch));
    out.add("loss", "Mean loss of the steps of the newest report.", report.loss);
    out.add("learning_rate", "Of the newest step.", report.lr);
    out.add("samples_per_second", "Of all ranks, in the newest report.", report.samples_per_s);
    out.add("memory_bytes", "Resident memory of rank 0.", static_cast<double>(report.memory_bytes));
    out.begin("report_phase_seconds", "Time of rank 0 since the report before, by phase.");
    for (std::size_t i = 0; i < report.phases.size(); ++i)
        out.add(report.phases[i], fmt::format(",phase=\"{}\"", phase_name(static_cast<Phase>(i))));
}

void add_evaluation(Exposition& out, const EvaluationMetrics& newest) {
    out.add("evaluated_step", "Step of the newest evaluation.", static_cast<double>(newest.step));
    out.begin("evaluation", "Figures of the newest evaluation.");
    for (const auto& [name, value] : newest.figures)
        out.add(value, fmt::format(",figure=\"{}\"", label(name)));
}

void add_ranks(Exposition& out, const RunFigures& run) {
    std::vector<std::pair<const RankFigures*, MeanStep>> means;
    for (const RankFigures& rank : run.ranks)
        if (const MeanStep mean = mean_step(rank); mean.steps > 0) means.emplace_back(&rank, mean);
    if (means.empty()) return;
    out.begin("step_phase_seconds", "Mean of a step of each rank, by phase.");
    for (const auto& [rank, mean] : means)
        for (std::size_t i = 0; i < mean.phases.size(); ++i)
            out.add(mean.phases[i],
                    fmt::format(",rank=\"{}\",host=\"{}\",phase=\"{}\"",
                                rank->facts.rank,
                                label(rank->facts.host),
                                phase_name(static_cast<Phase>(i))));
}

}  // namespace

std::string metrics_csv(const RunFigures& run) {
    std::vector<Cells> rows;
    for (const Json& row : rows_of(run)) add_cells(rows.emplace_back(), row, "");
    const std::vector<std::string> columns = columns_of(rows);
    std::string text = fmt::format("{}\n", fmt::join(columns, ","));
    for (const Cells& row : rows) {
        const std::map<std::string, std::string> texts(row.begin(), row.end());
        for (const std::string& column : columns) {
            if (&column != &columns.front()) text += ',';
            if (const auto found = texts.find(column); found != texts.end()) text += found->second;
        }
        text += '\n';
    }
    return text;
}

std::string metrics_jsonl(const RunFigures& run) {
    std::string text;
    for (const Json& row : rows_of(run)) text += row.dump() + '\n';
    return text;
}

std::string metrics_prometheus(const RunFigures& run) {
    Exposition out(run);
    out.add("start",
            "Number of the start that ranks' steps are of.",
            static_cast<double>(run.incarnation));
    if (!run.reports.empty()) add_report(out, run.reports.back());
    if (!run.evaluations.empty()) add_evaluation(out, run.evaluations.back());
    add_ranks(out, run);
    return out.text();
}

}  // namespace lockstep
