// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/root_cause.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_figures.hpp"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Bytes read from the end of each rank's log: a rank's error is the last line that it logs, except
// for other output to its stderr.
constexpr std::uint64_t end_bytes = 8 << 20;

// Returns nothing if there are no flight records, or they are damaged.
std::optional<Diagnosis> diagnosis_if_any(const fs::path& run, std::int64_t incarnation) try {
    return diagnosis_of(run, incarnation);
} catch (const Error&) {
    return {};
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

// None where the files cannot tell.
std::vector<Straggler> slow_ranks(const fs::path& run, std::int64_t incarnation) try {
    return find_stragglers(read_rank_figures(run, incarnation));
} catch (const Error&) {
    return {};
}

std::string next_about_slow(const RunStatus& status, std::int64_t incarnation) {
    return fmt::format(
        "lockstep report {}{}",
        shell_text({status.root.string()}),
        incarnation == status.incarnation ? "" : fmt::format(" --incarnation {}", incarnation));
}

// "the run is failed: REASON"
std::string standing_text(const RunStatus& status) {
    if (status.condition == RunCondition::lost)
        return fmt::format("the run ended without a message, {}",
                           status.saved_step < 0
                               ? "and there is no checkpoint"
                               : fmt::format("after the checkpoint of step {}", status.saved_step));
    return fmt::format("the run is {}{}",
                       run_condition_name(status.condition),
                       status.reason.empty() ? "" : ": " + plain_text(status.reason));
}

// If all ranks are gone without a word, their launcher was: nobody is to be named.
void name_the_dead(const fs::path& flight, const LaunchedRun& run, std::uint64_t kills_before) {
    if (!fs::exists(status_of(flight))) return;
    const auto traces = read_rank_traces(flight);
    Verdict verdict = diagnose(traces, unix_time_s(), 0);
    const bool has_crashed = std::ranges::any_of(traces, is_crash, &RankTrace::signal);
    const bool are_all = verdict.culprits.size() == traces.size() && !has_crashed;
    if (verdict.trouble != Trouble::dead || are_all) return;
    blame_memory(verdict, traces, kills_before);
    const Error error = error_of(verdict);
    claim_verdict(flight, verdict);
    run.mark_failed(error);
    throw error;
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

std::string cause_title(const RootCause& cause) {
    const RankError& error = cause.error;
    return fmt::format("{}{}: {}",
                       ranks_text(error.ranks),
                       error.host.empty() ? "" : " on " + plain_text(error.host),
                       cause.trouble.empty() ? "error " + plain_text(error.code) : cause.trouble);
}

std::string root_cause_text(const fs::path& run, std::int64_t incarnation, const RootCause& cause) {
    const RankError& error = cause.error;
    std::string text = fmt::format(
        "{}, start {}: {}\n", plain_text(run.string()), incarnation, cause_title(cause));
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

Json json_of(const RankError& error) {
    return {{"rank", error.ranks.front()},
            {"host", error.host},
            {"code", error.code},
            {"what", error.what},
            {"why", error.why},
            {"fix", error.fix},
            {"t", error.time_s},
            {"ranks", error.ranks}};
}

Json json_of(const RootCause& cause) {
    Json json = {{"kind", cause.is_verdict ? "verdict" : "error"}};
    json.update(json_of(cause.error));
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
    const bool has_records = fs::exists(status_of(RunPaths{status.root}.flight(incarnation)));
    const std::string look_closer =
        seen == AlreadyTold::logs ? fmt::format("lockstep logs {}{} --first-error", run, start)
        : has_records             ? fmt::format("lockstep diagnose {}{}", run, start)
                                  : fmt::format("lockstep logs {}{}", run, start);
    if (!is_newest) return look_closer;
    using enum RunCondition;
    if (status.condition == starting || status.condition == running)
        return fmt::format("lockstep logs {} --follow --since 1m", run);
    if (status.condition == stuck) return fmt::format("lockstep diagnose {}", run);
    if (status.condition == failed || status.condition == lost) return look_closer;
    return fmt::format("lockstep status {}", run);
}

FirstError first_error(const RunStatus& status, std::int64_t incarnation) {
    FirstError found{.cause = root_cause(status.root, incarnation)};
    if (!found.cause) found.slow = slow_ranks(status.root, incarnation);
    found.next = found.slow.empty()
                     ? next_command(status, incarnation, AlreadyTold::cause, found.cause)
                     : next_about_slow(status, incarnation);
    return found;
}

std::string first_error_text(const RunStatus& status,
                             std::int64_t incarnation,
                             const FirstError& found) {
    if (found.cause) return root_cause_text(status.root, incarnation, *found.cause);
    const std::string begin = fmt::format(
        "{}, start {}: no error in its logs; ", plain_text(status.root.string()), incarnation);
    const std::string standing = standing_text(status) + "\n";
    if (found.slow.empty()) return begin + standing;
    return fmt::format("{}{}\n  fix: {}\n  {}",
                       begin,
                       plain_text(stragglers_text(found.slow)),
                       plain_text(advice(found.slow.front())),
                       standing);
}

Json json_of(const FirstError& found) {
    if (found.cause) return json_of(*found.cause);
    if (found.slow.empty()) return Json::object();
    const Straggler& slowest = found.slow.front();
    Json json = json_of(slowest);
    json["kind"] = "slow";
    json["what"] = stragglers_text(found.slow);
    json["fix"] = advice(slowest);
    return json;
}

int explain_end(const LaunchedRun& run, const std::function<int()>& launch, const fs::path& root) {
    const fs::path before = run.newest_flight();
    const std::uint64_t kills_before = control_group_memory_end(root).kills;
    int code = 0;
    std::exception_ptr killed;
    try {
        code = launch();
    } catch (const Error&) {
        killed = std::current_exception();
    }
    const bool is_known = code == 0 || code == static_cast<int>(ExitCode::saved_please_requeue) ||
                          code == static_cast<int>(ExitCode::interrupted);
    if (!killed && is_known) return code;
    const fs::path flight = run.newest_flight();
    if (!flight.empty() && flight != before) {
        if (fs::exists(status_of(verdict_path(flight)))) {
            // Its words went to a host that nobody hears any more.
            if (killed && claim_unheard_verdict(flight, heard_within_s))
                throw error_of(*read_verdict(flight));
            return static_cast<int>(ExitCode::peer_lost);
        }
        name_the_dead(flight, run, kills_before);
    }
    // Before the ranks have a record, or of all of them at once.
    const std::string lack = killed ? lack_of_memory(kills_before, root) : "";
    if (!lack.empty())
        throw Error("E612", "the ranks ended: memory ran out", lack, fix_of_memory());
    if (killed) std::rethrow_exception(killed);
    return code;
}

}  // namespace lockstep
