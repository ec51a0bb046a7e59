// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_figures.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/text_table.hpp"

#include "logs/rank_log.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

EvaluationMetrics evaluation_in(const Json& line) {
    EvaluationMetrics metrics{line.at("step").get<std::int64_t>(), 0, {}};
    if (const Json* epoch = line.find("epoch")) metrics.epoch = epoch->get<std::int64_t>();
    for (const auto& [key, value] : line.items())
        if (key.starts_with("test_") && value.is_number())
            metrics.figures[key] = value.get<double>();
    return metrics;
}

/// A line that is damaged, or half written, is passed over.
void add_line(RunFigures& run, std::string_view text) {
    const Json line = try_parse_json(text).value_or(Json());
    if (!line.contains("step")) return;
    try {
        if (line.contains("samples_per_s"))
            run.reports.push_back(record_from_json<StepsEvent>(line, "metrics"));
        else
            run.evaluations.push_back(evaluation_in(line));
    } catch (const Error&) {
    }
}

template <class T>
void keep_newest(std::vector<T>& all) {
    constexpr std::size_t most = 100'000;
    if (all.size() >= 2 * most) all.erase(all.begin(), all.end() - most);
}

/// The newest that fit into memory whatever the file is; a report has some 700 bytes.
void read_metrics(RunFigures& run) {
    constexpr std::int64_t most_bytes = 64 << 20;
    const fs::path path = RunPaths{run.root}.metrics();
    LogLines lines(path);
    if (lines.size() > most_bytes)
        once(Level::warn,
             "'{}' has {}: only its newest {} are read",
             path.string(),
             bytes_text(static_cast<std::uint64_t>(lines.size())),
             bytes_text(most_bytes));
    lines.choose_last(most_bytes);
    while (const auto line = lines.next()) {
        add_line(run, *line);
        keep_newest(run.reports);
        keep_newest(run.evaluations);
    }
}

// Among the first records of a rank's log.
std::optional<PlaceEvent> place_in(const fs::path& log) {
    constexpr int most_records = 32;
    LogLines lines(log);
    lines.choose(0, 1 << 20);
    for (int i = 0; i < most_records; ++i) {
        const auto line = lines.next();
        if (!line) break;
        const auto entry = log_entry_in(*line);
        if (const auto* const place = entry ? std::get_if<PlaceEvent>(&entry->event) : nullptr)
            return *place;
    }
    return {};
}

/// A few, near the end of a rank's log; oldest first. Others are not parsed: with many nodes they
/// are long.
std::vector<StepsEvent> newest_reports(const fs::path& log) {
    constexpr std::int64_t end_bytes = 64 << 10;
    constexpr std::size_t most_reports = 4;
    std::vector<StepsEvent> reports;
    LogLines lines(log);
    lines.choose_last(end_bytes);
    std::deque<std::string> newest;
    while (const auto line = lines.next()) {
        if (!line->ends_with('}') || line->find("\"so_far\"") == line->npos) continue;
        newest.emplace_back(*line);
        if (newest.size() > most_reports) newest.pop_front();
    }
    for (const std::string& report : newest)
        if (auto entry = log_entry_in(report))
            if (auto* const event = std::get_if<StepsEvent>(&entry->event))
                reports.push_back(std::move(*event));
    return reports;
}

/// Damage of one rank's file does not affect the others.
RankFigures read_rank(const fs::path& logs, const RankLogFacts& facts) {
    RankFigures rank{.facts = facts};
    const fs::path log = logs / fmt::format("rank-{:05}.jsonl", facts.rank);
    rank.place = place_in(log);
    const std::vector<StepsEvent> reports = newest_reports(log);
    rank.data_bound = what_bound(reports);
    for (const StepsEvent& report : reports)
        if (report.so_far) rank.links = report.so_far->links;
    try {
        rank.steps = read_step_budgets(step_budgets_path(logs, facts.rank));
    } catch (const Error& error) {
        rank.damage = error.what();
    }
    return rank;
}

void read_ranks(RunFigures& run, std::int64_t incarnation) {
    const fs::path logs = RunPaths{run.root}.logs(incarnation);
    if (!fs::is_directory(logs)) return;
    run.incarnation = incarnation;
    run.ranks.clear();
    for (const RankLogFacts& facts : read_log_facts(logs))
        run.ranks.push_back(read_rank(logs, facts));
}

bool has_steps(const RunFigures& run) {
    return std::ranges::any_of(run.ranks,
                               [](const RankFigures& rank) { return !rank.steps.empty(); });
}

std::string text_between(int file, std::uint64_t begin, std::uint64_t end, const fs::path& path) {
    std::string text(end - begin, '\0');
    text.resize(read_at(file, std::as_writable_bytes(std::span(text)), begin, path));
    return text;
}

/// Where the line begins that ends before `end`; reads backwards in blocks.
std::uint64_t start_of_line(int file, std::uint64_t end, const fs::path& path) {
    constexpr std::uint64_t block = 4096;
    while (end > 0) {
        const auto begin = end - std::min(block, end);
        const auto newline = text_between(file, begin, end, path).rfind('\n');
        if (newline != std::string::npos) return begin + newline + 1;
        end = begin;
    }
    return 0;
}

/// A line that is damaged, or that belongs to a step which the resumed run will do again.
bool is_beyond(const std::string& line, std::int64_t resumed_step) {
    const Json json = try_parse_json(line).value_or(Json());
    const Json* const step = json.find("step");
    return !step || !step->is_number_integer() || step->get<std::int64_t>() > resumed_step;
}

/// Length of the file without the last lines that are not whole or lie beyond `resumed_step`.
/// Steps only grow, so the search ends at the first line to keep: a resume costs what it drops.
std::uint64_t length_to_keep(int file, std::int64_t resumed_step, const fs::path& path) {
    const auto size = static_cast<std::uint64_t>(::lseek(file, 0, SEEK_END));
    auto end = start_of_line(file, size, path);
    while (end > 0) {
        const auto begin = start_of_line(file, end - 1, path);
        if (!is_beyond(text_between(file, begin, end - 1, path), resumed_step)) break;
        end = begin;
    }
    return end;
}

/// A report or an evaluation of the run.
using MetricsRow = std::variant<const StepsEvent*, const EvaluationMetrics*>;

std::int64_t step_of(const MetricsRow& row) {
    const auto* const report = std::get_if<const StepsEvent*>(&row);
    return report ? (*report)->report.step : std::get<const EvaluationMetrics*>(row)->step;
}

/// In order of steps, an evaluation behind the report of its step.
std::vector<MetricsRow> rows_of(const RunFigures& run) {
    std::vector<MetricsRow> rows;
    for (const StepsEvent& report : run.reports) rows.emplace_back(&report);
    for (const EvaluationMetrics& evaluation : run.evaluations) rows.emplace_back(&evaluation);
    std::ranges::stable_sort(rows, {}, step_of);
    return rows;
}

Json json_of(const MetricsRow& row) {
    Json json = Json::object();
    json["kind"] = row.index() == 0 ? "report" : "evaluation";
    std::visit([&](const auto* record) { json.update(json_of_record(*record)); }, row);
    return json;
}

using NamedCells = std::vector<std::pair<std::string, std::string>>;  ///< column, text

/// RFC 4180 has quotes, but no escapes: control characters become '?'.
std::string csv_text(const Json& value) {
    return value.is_null() ? "" : csv_cell(printable_lines(value.as_text()));
}

void add_cells(NamedCells& cells, const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
        if (value.is_object())
            add_cells(cells, value, prefix + key + ".");
        else
            cells.emplace_back(csv_text(prefix + key), csv_text(value));
    }
}

NamedCells cells_of(const MetricsRow& row) {
    NamedCells cells;
    add_cells(cells, json_of(row), "");
    return cells;
}

/// Names of columns, in the order in which rows have them first.
std::vector<std::string> columns_of(std::span<const MetricsRow> rows) {
    std::vector<std::string> columns;
    std::set<std::string> known;
    for (const MetricsRow& row : rows)
        for (const auto& [column, text] : cells_of(row))
            if (known.insert(column).second) columns.push_back(column);
    return columns;
}

/// JSON that a terminal shows as it is: control characters are escapes, which parsers undo.
std::string json_line(const Json& row) {
    const std::string text = row.dump();
    std::string line;
    for (std::string_view rest(text); !rest.empty();) {
        const Character first = first_character(rest);
        if (first.is_control)
            line += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(first.letter));
        else
            line += rest.substr(0, first.bytes);
        rest.remove_prefix(first.bytes);
    }
    return line + '\n';
}

/// Returns the text between the quotes of a label.
std::string label(std::string_view text) {
    std::string escaped;
    for (const char c : printable_lines(text)) {
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

MetricsFile::MetricsFile(const fs::path& path, std::int64_t resumed_step)
    : path_(path), file_(open_for_writing(path, O_RDWR | O_CREAT | O_APPEND)) {
    if (!file_) throw system_error("open", path.string(), errno);
    const auto length = length_to_keep(file_.value(), resumed_step, path);
    if (::ftruncate(file_.value(), static_cast<off_t>(length)) != 0) {
        throw system_error("cut", path.string(), errno);
    }
}

void MetricsFile::append(const Json& record) {
    const auto line = record.dump() + '\n';
    write_all(file_.value(), bytes_of(line), path_);
}

// Row by row: all of a long run's rows would fill the memory.
std::string metrics_csv(const RunFigures& run) {
    const std::vector<MetricsRow> rows = rows_of(run);
    const std::vector<std::string> columns = columns_of(rows);
    std::string text = fmt::format("{}\n", fmt::join(columns, ","));
    for (const MetricsRow& row : rows) {
        const NamedCells cells = cells_of(row);
        const std::map<std::string, std::string> texts(cells.begin(), cells.end());
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
    for (const MetricsRow& row : rows_of(run)) text += json_line(json_of(row));
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

RunFigures read_rank_figures(const fs::path& root, std::int64_t incarnation) {
    RunFigures run{.root = root, .record = read_run_record(root)};
    const std::int64_t newest = read_incarnation(root);
    for (std::int64_t i = incarnation > 0 ? incarnation : newest; i >= 1; --i) {
        read_ranks(run, i);
        if (has_steps(run) || incarnation > 0) break;
    }
    if (incarnation == 0 && !has_steps(run) && newest > 0) read_ranks(run, newest);
    return run;
}

RunFigures read_run_figures(const fs::path& root, std::int64_t incarnation) {
    RunFigures run = read_rank_figures(root, incarnation);
    read_metrics(run);
    return run;
}

std::string what_bound(std::span<const StepsEvent> reports) {
    std::map<std::string, double> waited;
    constexpr double unnoticed = 0.01;  // share of the time, as in binding_stage()
    for (const StepsEvent& event : reports)
        if (!event.data.bound.empty() && event.data.wait_s > unnoticed * event.wall_s)
            waited[event.data.bound] += event.data.wait_s;
    const auto most =
        std::ranges::max_element(waited, {}, [](const auto& bound) { return bound.second; });
    return most == waited.end() || most->second <= 0 ? "" : most->first;
}

MeanStep mean_step(const RankFigures& rank) {
    MeanStep mean;
    for (const StepBudget& step : rank.steps) {
        if (&step == &rank.steps.front() && rank.steps.size() > 1) continue;
        ++mean.steps;
        mean.phases += step.phases;
    }
    for (double& seconds : mean.phases)
        seconds /= std::max<double>(1, static_cast<double>(mean.steps));
    return mean;
}

MeanStep mean_step(const RunFigures& run) {
    MeanStep mean;
    double ranks = 0;
    for (const RankFigures& rank : run.ranks) {
        const MeanStep own = mean_step(rank);
        if (own.steps == 0) continue;
        ++ranks;
        mean.steps = std::max(mean.steps, own.steps);
        mean.phases += own.phases;
    }
    for (double& seconds : mean.phases) seconds /= std::max(1.0, ranks);
    return mean;
}

}  // namespace lockstep
