// SPDX-License-Identifier: Apache-2.0
// All facts about a run, by one clock and from one source: the newest start's records, on rank 0's
// clock, and its ranks' own records of their end.
//
// What must never happen:
// - A time of another host is compared with this host's clock as it stands: see RunClock.
// - A run "ended without a word" though a rank's log, or the verdict of its ranks, has that word.
//
// Tested: run/cause/root_cause_test.cpp, app/runs/run_clues_test.cpp.
#include "lockstep/run/root_cause.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_figures.hpp"
#include "lockstep/run/verdict.hpp"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Returns what `read` returns; nothing where files cannot tell.
template <class Read>
auto if_any(Read&& read) -> decltype(read()) {
    try {
        return read();
    } catch (const Error&) {
        return {};
    }
}

// Bytes read from the end of each rank's log: a rank's error is the last line that it logs, except
// for other output to its stderr.
constexpr std::uint64_t end_bytes = 8 << 20;

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
    const Diagnosis found = if_any([&] { return diagnosis_of(run, incarnation); });
    if (found.verdict.trouble == Trouble::none || found.verdict.trouble == Trouble::ended)
        return {};
    const Error said = error_of(found.verdict);
    RootCause cause{.is_verdict = true, .trouble = std::string(name_of(found.verdict.trouble))};
    cause.error = {.ranks = found.verdict.culprits,
                   .code = said.code(),
                   .what = said.what(),
                   .why = said.why(),
                   .fix = said.fix()};
    add_whereabouts(cause.error, found.traces);
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

/// The flight records of a start and the present, on its rank 0's clock.
struct Records {
    RunClock clock;
    std::vector<RankTrace> traces;
    double heard_s = 0;  ///< the newest sign of life; 0: none
    double now_s = 0;
};

// Errors: E663.
Records read_records(const fs::path& run, std::int64_t start) {
    Records found{.clock = read_run_clock(RunPaths{run}.logs(start))};
    found.traces = read_rank_traces(RunPaths{run}.flight(start));
    for (RankTrace& trace : found.traces) {
        if (!trace.damage.empty()) continue;
        put_on_clock(trace, found.clock.ahead_s(trace.rank));
        found.heard_s = std::max(found.heard_s, trace.heartbeat_s);
    }
    found.now_s = found.clock.present_s(unix_time_s(), host_name(), found.heard_s);
    return found;
}

// Without traces where the ranks have left no records, or have not made them yet.
Records records_if_any(const fs::path& run) {
    Records none{.now_s = unix_time_s()};
    try {
        const std::int64_t start = read_incarnation(run);
        none.clock = read_run_clock(RunPaths{run}.logs(start));
        none.now_s = none.clock.present_s(none.now_s, host_name(), 0);
        return read_records(run, start);
    } catch (const Error&) {
        return none;
    }
}

std::string trouble_text(const Verdict& verdict) {
    if (verdict.trouble == Trouble::none || verdict.trouble == Trouble::ended) return "";
    return fmt::format("{}: {}", name_of(verdict.trouble), verdict.what);
}

// Its ranks have said that they give up, or one that it failed, and all are silent since.
bool has_ended(const fs::path& flight, const Records& found) {
    const auto failed = [](const RankTrace& trace) { return trace.end == FlightEnd::failed; };
    const bool is_said =
        std::ranges::any_of(found.traces, failed) || if_any([&] { return read_verdict(flight); });
    return is_said && found.now_s - found.heard_s > silence_after_end_s;
}

// By the run's own files and flight records alone.
RunStatus recorded_status(const fs::path& run, StatusDepth depth) {
    const Records found = records_if_any(run);
    StatusClues clues{
        .now_unix_s = found.now_s,
        .heartbeat_unix_s = found.heard_s,
        .clock = found.clock,
        .trouble = trouble_text(diagnose(found.traces, found.now_s, patience_of(found.traces)))};
    if (!found.traces.empty())
        clues.has_ended = has_ended(RunPaths{run}.flight(read_incarnation(run)), found);
    const auto checkpoints = list_checkpoints(RunPaths{run}.checkpoints());
    if (!checkpoints.empty()) clues.saved_step = checkpoints.back().step;
    return read_run_status(run, clues, depth);
}

// A rank that was killed in the middle of its end has logged why, though nobody wrote a state.
void tell_end(RunStatus& status) {
    const auto cause = if_any([&] { return root_cause(status.root, status.incarnation); });
    if (!cause) return;
    const RankError& error = cause->error;
    const fs::path flight = RunPaths{status.root}.flight(status.incarnation);
    const auto given = if_any([&] { return read_verdict(flight); });
    if (cause->is_verdict && !given) {
        status.trouble = fmt::format("{}: {}", cause->trouble, error.what);
        return;
    }
    status.condition = RunCondition::failed;
    status.reason = printable(fmt::format("{}: {}{}",
                                          error.code,
                                          cause->is_verdict ? "" : ranks_text(error.ranks) + ": ",
                                          error.what));
    const ErrorEntry* const known = find_error(error.code);
    status.exit = static_cast<int>(known ? known->exit_code : ExitCode::bug);
}

// A start is over when a newer one has begun, and when the run says so or nobody holds it.
bool is_start_over(const fs::path& run, std::int64_t incarnation) {
    if (!is_run(run)) return false;
    const RunStatus status = recorded_status(run, StatusDepth::now);
    return incarnation < status.incarnation || !status.is_alive();
}

// Rank, node, what and why, and the last output of its ranks.
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
    if (!found.cause)
        found.slow =
            if_any([&] { return find_stragglers(read_rank_figures(status.root, incarnation)); });
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

Diagnosis diagnosis_of(const fs::path& run, std::int64_t incarnation) {
    check_is_there(run);
    Diagnosis found{.incarnation = incarnation > 0 ? incarnation : read_incarnation(run)};
    const fs::path folder = RunPaths{run}.flight(found.incarnation);
    Records records = read_records(run, found.incarnation);
    found.traces = std::move(records.traces);
    found.is_over = is_start_over(run, found.incarnation);
    // For a start that is over all signs of life are old, whatever this host's clock shows.
    found.now_s = found.is_over && records.heard_s > records.now_s + early_s
                      ? records.heard_s + silence_after_end_s + 1
                      : records.now_s;
    found.verdict = diagnose(found.traces,
                             found.now_s,
                             patience_of(found.traces),
                             found.is_over ? silence_after_end_s : silence_s);
    if (const auto given = read_verdict(folder)) found.verdict = *given;
    return found;
}

double patience_of(std::span<const RankTrace> traces) {
    double patience_s = 0;
    for (const RankTrace& trace : traces) patience_s = std::max(patience_s, trace.warn_s);
    return patience_s;
}

RunStatus status_of_run(const fs::path& run, StatusDepth depth) {
    RunStatus status = recorded_status(run, depth);
    if (status.condition == RunCondition::lost) tell_end(status);
    return status;
}

}  // namespace lockstep
