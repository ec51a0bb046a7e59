// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/root_cause.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/ranks_text.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/run_directory.hpp"

#include <algorithm>
#include <deque>
#include <span>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Bytes read from the end of each rank's log: a rank's error is the last line that it logs, except
// for other output to its stderr.
constexpr std::uint64_t end_bytes = 8 << 20;

// Returns nothing if there are no flight records, or they are damaged.
std::optional<Diagnosis> diagnosis_if_any(const fs::path& run, std::int64_t incarnation) {
    try {
        return diagnosis_of(run, incarnation);
    } catch (const Error&) {
        return {};
    }
}

// If no rank is to blame more than others, the trouble concerns all ranks, on all hosts.
void add_whereabouts(RankError& error, std::span<const RankTrace> traces) {
    const bool is_everybodys = error.ranks.empty();
    for (const RankTrace& trace : traces) {
        if (!trace.damage.empty()) continue;
        if (is_everybodys) error.ranks.push_back(trace.rank);
        if (error.ranks.empty() || (!is_everybodys && trace.rank != error.ranks.front())) continue;
        if (!is_everybodys || error.ranks.size() == 1) error.host = trace.host;
        if (error.host != trace.host) error.host.clear();
        error.time_s = std::max(error.time_s, trace.heartbeat_s);
    }
}

std::optional<RootCause> verdict_cause(const fs::path& run, std::int64_t incarnation) {
    const auto found = diagnosis_if_any(run, incarnation);
    if (!found || found->verdict.trouble == Trouble::none ||
        found->verdict.trouble == Trouble::ended)
        return {};
    const Error said = error_of(found->verdict);
    RootCause cause{.is_verdict = true, .trouble = std::string(name_of(found->verdict.trouble))};
    cause.error = {.ranks = found->verdict.culprits,
                   .code = said.code(),
                   .what = said.what(),
                   .why = said.why(),
                   .fix = said.fix()};
    add_whereabouts(cause.error, found->traces);
    if (cause.error.ranks.empty()) return {};
    return cause;
}

/// The last lines of a rank, but for errors, which are shown elsewhere; of what it wrote to stderr
/// behind them the beginning: traces tell most there.
class LastLines {
  public:
    void add(const FoldedLine& line) {
        if (line.kind == LogKind::error) return;
        if (line.kind == LogKind::captured) {
            if (captured_++ < most_captured) text_.append(captured_lines_, line, indent);
            return;
        }
        captured_ = 0;
        captured_lines_.clear();
        text_.append(said_.emplace_back(), line, indent);
        if (said_.size() > most_said) said_.pop_front();
    }

    std::string text() const {
        std::string all;
        for (const std::string& line : said_) all += line;
        all += captured_lines_;
        if (captured_ > most_captured)
            all += fmt::format("{}and {} more lines\n", indent, captured_ - most_captured);
        return all;
    }

  private:
    static constexpr std::size_t most_said = 4, most_captured = 8;
    static constexpr std::string_view indent = "    ";
    LogText text_{LogStyle{}};
    std::deque<std::string> said_;
    std::string captured_lines_;
    std::size_t captured_ = 0;
};

std::string last_lines(const fs::path& folder, int rank) {
    LastLines last;
    LogFold fold({.window_s = 0}, [&](const FoldedLine& line) { last.add(line); });
    LogMerge merge(folder, {.ranks = std::vector<int>{rank}, .newest_bytes = end_bytes});
    while (const LogLine* const line = merge.next()) fold.add(*line);
    merge.take_last_words();
    while (const LogLine* const line = merge.next()) fold.add(*line);
    fold.finish();
    return last.text();
}

std::string place_text(const RankError& error) {
    return ranks_text(error.ranks) + (error.host.empty() ? "" : " on " + plain_text(error.host));
}

}  // namespace

std::optional<RootCause> root_cause(const fs::path& run, std::int64_t incarnation) {
    const fs::path folder = RunPaths{run}.logs(incarnation);
    const auto facts = read_log_facts(folder);
    LogMerge logs(folder, {.least = Level::error, .newest_bytes = end_bytes});
    RankErrors errors = read_errors(logs, facts);
    const bool is_sure = errors.first && errors.first->blame == Blame::own;
    std::optional<RootCause> cause;
    if (!is_sure) cause = verdict_cause(run, incarnation);
    if (!cause && errors.first) cause.emplace().error = *errors.first;
    if (!cause && errors.told) cause.emplace().error = *errors.told;
    if (cause) cause->followers = std::move(errors.followers);
    return cause;
}

std::string root_cause_text(const fs::path& run, std::int64_t incarnation, const RootCause& cause) {
    const RankError& error = cause.error;
    std::string text = fmt::format("{}, start {}: {}: {}\n",
                                   plain_text(run.string()),
                                   incarnation,
                                   place_text(error),
                                   cause.is_verdict ? cause.trouble : "error " + error.code);
    text += fmt::format("  what: {}\n", plain_text(error.what));
    if (!error.why.empty()) text += fmt::format("  why: {}\n", plain_text(error.why));
    if (!error.fix.empty()) text += fmt::format("  fix: {}\n", plain_text(error.fix));
    if (error.time_s > 0)
        text += fmt::format(
            "  {}: {}\n", cause.is_verdict ? "last sign of life" : "when", utc_text(error.time_s));
    if (!cause.followers.empty())
        text += fmt::format("  consequence: {} ended for it\n", ranks_text(cause.followers));
    const std::string last = last_lines(RunPaths{run}.logs(incarnation), error.ranks.front());
    if (!last.empty())
        text += fmt::format("  last lines of rank {}:\n{}", error.ranks.front(), last);
    return text;
}

Json json_of(const RootCause& cause) {
    const RankError& error = cause.error;
    Json json = {{"kind", cause.is_verdict ? "verdict" : "error"},
                 {"rank", error.ranks.front()},
                 {"host", error.host},
                 {"code", error.code},
                 {"what", error.what},
                 {"why", error.why},
                 {"fix", error.fix},
                 {"t", error.time_s}};
    json["ranks"] = error.ranks;
    if (cause.is_verdict) json["trouble"] = cause.trouble;
    json["consequences"] = cause.followers;
    return json;
}

std::string next_command(const RunStatus& status,
                         std::int64_t incarnation,
                         AlreadyTold seen,
                         const std::optional<RootCause>& cause) {
    const std::string run = shell_text({status.root.string()});
    const bool is_newest = incarnation == status.incarnation;
    const std::string start = is_newest ? "" : fmt::format(" --incarnation {}", incarnation);
    if (cause && cause->is_verdict) return fmt::format("lockstep diagnose {}{}", run, start);
    if (cause) return fmt::format("lockstep explain {}", plain_text(cause->error.code));
    std::error_code missing;
    const bool has_records = fs::exists(RunPaths{status.root}.flight(incarnation), missing);
    const std::string look_closer =
        seen == AlreadyTold::logs ? fmt::format("lockstep logs {}{} --first-error", run, start)
        : has_records             ? fmt::format("lockstep diagnose {}{}", run, start)
                                  : fmt::format("lockstep logs {}{}", run, start);
    if (!is_newest) return look_closer;
    switch (status.condition) {
        case RunCondition::starting:
        case RunCondition::running:
            return fmt::format("lockstep logs {} --follow --since 1m", run);
        case RunCondition::stuck:
            return fmt::format("lockstep diagnose {}", run);
        case RunCondition::failed:
        case RunCondition::lost:
            return look_closer;
        default:
            return fmt::format("lockstep status {}", run);
    }
}

}  // namespace lockstep
