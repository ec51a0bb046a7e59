// SPDX-License-Identifier: Apache-2.0
// The status of a run, and its text and JSON.
#include "lockstep/run/run_status.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/text_table.hpp"

#include "folder/run_lock.hpp"
#include "logs/rank_log.hpp"
#include "run_history.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Returns how far rank 0's clock is ahead of the file system's, by the last line of its log.
std::optional<double> ahead_of_files_s(const fs::path& log) {
    constexpr std::int64_t end_bytes = 64 << 10;
    try {
        LogLines lines(log);
        if (lines.size() == 0) return {};
        const double written_s = 1e-9 * static_cast<double>(file_stamp(log).time_ns);
        double last_s = 0;
        lines.choose_last(end_bytes);
        while (const auto line = lines.next()) {
            const auto json = try_parse_json(*line);
            const Json* const time = json ? json->find("t") : nullptr;
            if (time && time->is_number()) last_s = time->get<double>();
        }
        if (last_s > 0) return last_s - written_s;
    } catch (const Error&) {
        // It is gone, or no log.
    }
    return {};
}

/// Time after its newest sign of life for which a rank of another host may still be at work: file
/// servers show its writes late.
constexpr double server_silence_s = 120;

constexpr std::array<std::string_view, 7> condition_names{
    "starting", "running", "stuck", "checkpointed", "complete", "failed", "lost"};

/// Reports come every 30 s, or after a longer step; what a rate of long ago promises is not told.
constexpr double overdue_s = 120;

/// Returns true if it exists; unreadable paths do not count as absent.
bool is_there(const fs::path& path, const fs::path& shown) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (status.type() == fs::file_type::not_found) return false;
    check(!failed, [&] { return system_error("look into", shown.string(), failed.value()); });
    return true;
}

void check_run(const fs::path& root) {
    check_is_there(root);
    check(is_run(root), [&] {
        return Error("E688",
                     fmt::format("'{}' is no run", root.string()),
                     "it has no run.json and no run.lock",
                     "give the directory that was given to 'train --run'; "
                     "'lockstep status --all DIR' lists the runs below a folder");
    });
}

/// Newest write that rank 0 does at least every 30 s, by the file's own time.
double newest_write_unix_s(const fs::path& root, std::int64_t incarnation, double now_unix_s) {
    double newest = 0;
    const auto here = fs::file_time_type::clock::now();
    for (const auto& path : {RunPaths{root}.logs(incarnation) / "rank-00000.jsonl",
                             RunPaths{root}.state(),
                             RunPaths{root}.lock()}) {
        std::error_code missing;
        const auto time = fs::last_write_time(path, missing);
        if (missing) continue;
        newest = std::max(newest, now_unix_s - std::chrono::duration<double>(here - time).count());
    }
    return newest;
}

/// A lock that this host sees is proof of life. One it does not see proves death on the holder's
/// own host only: not every file system carries flock between hosts.
bool is_somebody_there(const RunHolder& holder, double sign_of_life_s) {
    if (holder.is_held) return true;
    if (holder.pid == 0 || holder.is_here) return false;
    return sign_of_life_s >= 0 && sign_of_life_s < server_silence_s;
}

RunCondition condition_of(bool is_there,
                          const std::optional<RunState>& state,
                          std::int64_t incarnation) {
    const bool is_newest = state && (state->incarnation == incarnation || state->incarnation == 0);
    if (!is_newest) return is_there ? RunCondition::starting : RunCondition::lost;
    if (state->phase == RunPhase::checkpointed) return RunCondition::checkpointed;
    if (state->phase == RunPhase::complete) return RunCondition::complete;
    if (state->phase == RunPhase::failed) return RunCondition::failed;
    return is_there ? RunCondition::running : RunCondition::lost;
}

std::optional<ControlRequest> unmet_request(const RunStatus& status) {
    const RunPaths paths{status.root};
    for (const auto& path : {paths.asked(), paths.taken()}) try {
            auto request = read_control_request(path);
            if (request && request->incarnation == status.incarnation) return request;
        } catch (const Error&) {
            // The run itself says so; here it is as good as none.
        }
    return {};
}

void add_history(RunStatus& status, const StatusClues& clues) {
    const std::int64_t kept_until =
        status.is_alive() ? -1 : std::max<std::int64_t>(clues.saved_step, 0);
    status.starts = read_starts(status.root, status.incarnation, kept_until, clues.clock);
    if (status.starts.empty()) return;
    const StartRecord& newest = status.starts.back();
    const bool is_newest = newest.incarnation == status.incarnation;
    double end_s = std::max(newest.ended_unix_s, is_newest ? clues.heartbeat_unix_s : 0.0);
    if (status.is_alive()) end_s = newest.to_step < 0 ? clues.now_unix_s : newest.ended_unix_s;
    // By the newest start that did a step: a complete run's next ones do none.
    std::int64_t seen = -1;
    for (const StartRecord& start : status.starts)
        if (start.from_step >= 0 || start.to_step >= 0)
            seen = std::max(start.from_step, start.to_step);
    const bool is_told = status.is_alive() || seen >= clues.saved_step;
    if (is_told) status.times = run_times(status.starts, end_s);  // else steps count unseen
    if (!status.is_alive() || !is_newest) return;
    status.step = std::max(status.step, newest.to_step);
    status.epoch = std::max(status.epoch, newest.epoch);
    const double silent_s = clues.now_unix_s - newest.ended_unix_s;
    if (silent_s > overdue_s + 3 * std::max(newest.step_s, 0.0)) status.reported_s = silent_s;
    const bool is_known = newest.step_s >= 0 && status.steps_total > 0 && status.reported_s < 0;
    if (!is_known || status.condition == RunCondition::stuck) return;
    const double left_s =
        newest.step_s * static_cast<double>(status.steps_total - status.step) - silent_s;
    status.eta_s = std::max(left_s, 0.0);
}

constexpr int deepest = 6;  // folders below the one that was given

/// One that nobody may look into is listed: its status tells so.
bool is_run_or_closed(const fs::path& folder) {
    try {
        return is_run(folder);
    } catch (const Error&) {
        return true;
    }
}

void add_runs(const fs::path& folder, int depth, std::vector<fs::path>& runs) {
    // A run's own folders hold no other runs, but many files.
    constexpr std::array<std::string_view, 3> parts{"ckpt", "logs", "ledger"};
    const bool is_one = is_run_or_closed(folder);
    if (is_one) runs.push_back(folder);
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const bool is_folder = !entry.is_symlink(failed) && entry.is_directory(failed);
        const bool is_part = std::ranges::count(parts, entry.path().filename().string()) > 0;
        if (depth == deepest || !is_folder || (is_one && is_part)) continue;
        add_runs(entry.path(), depth + 1, runs);
    }
}

std::string share_text(double part, double whole) {
    return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "-";
}

std::string step_text(const RunStatus& status) {
    if (status.steps_total <= 0) return fmt::format("{}", status.step);
    return fmt::format(
        "{} of {} ({})",
        status.step,
        status.steps_total,
        share_text(static_cast<double>(status.step), static_cast<double>(status.steps_total)));
}

std::string eta_text(const RunStatus& status) {
    return status.eta_s < 0 ? "-" : duration_text(status.eta_s);
}

std::string row(std::string_view name, const std::string& text) {
    return text.empty() ? "" : fmt::format("  {:<11} {}\n", name, text);
}

// Why it is lost, in one sentence.
std::string loss_text(const RunStatus& status) {
    if (status.condition != RunCondition::lost) return "";
    const auto who = status.holder.empty() ? "its process" : status.holder;
    return fmt::format(
        "no process works on it: {} has ended without a message; the same command {}",
        who,
        status.saved_step < 0 ? "begins again: there is no checkpoint"
                              : fmt::format("goes on from step {}", status.saved_step));
}

std::string start_text(const StartRecord& start) {
    const auto length = duration_text(std::max(start.ended_unix_s - start.began_unix_s, 0.0));
    std::string steps = "no step";
    if (start.to_step >= 0)
        steps = fmt::format("steps {} to {}", start.from_step, start.to_step);
    else if (start.from_step >= 0)
        steps = fmt::format("from step {}, without a report", start.from_step);
    return fmt::format(
        "{}: {} | {} | {}", start.incarnation, utc_text(start.began_unix_s), length, steps);
}

std::string lost_text(const RunTimes& times) {
    if (times.elapsed <= 0) return "";
    const std::pair<const char*, double> losses[] = {{"steps done again or lost", times.repeated},
                                                     {"saving", times.saving},
                                                     {"evaluating", times.evaluating},
                                                     {"starting", times.starting},
                                                     {"between starts", times.down},
                                                     {"other", times.other}};
    std::string parts;
    for (const auto& [name, seconds] : losses)
        if (seconds >= 0.0005)
            parts +=
                fmt::format("{}{} {}", parts.empty() ? ": " : ", ", name, duration_text(seconds));
    return duration_text(times.lost()) + parts;
}

std::string goodput_text(const RunTimes& times) {
    if (times.elapsed <= 0) return "";
    return fmt::format(
        "{} of {}", share_text(times.training, times.elapsed), duration_text(times.elapsed));
}

std::string request_text(const std::optional<ControlRequest>& asked) {
    if (!asked) return "";
    return fmt::format(
        "{} asked at {} to {}", asked->by, asked->asked, control_action_name(asked->action));
}

}  // namespace

RunClock::RunClock(std::vector<RankLogFacts> ranks, fs::path log)
    : ranks_(std::move(ranks)), log_(std::move(log)) {}

double RunClock::ahead_s(int rank) const {
    const auto found = std::ranges::find(ranks_, rank, &RankLogFacts::rank);
    return found == ranks_.end() ? 0 : found->clock_ahead_s;
}

std::optional<double> RunClock::ahead_on(std::string_view host) const {
    const auto found = std::ranges::find(ranks_, host, &RankLogFacts::host);
    if (host.empty() || found == ranks_.end()) return {};
    return found->clock_ahead_s;
}

double RunClock::present_s(double here_s, std::string_view host, double heard_s) const {
    if (const auto ahead_s = ahead_on(host)) return here_s - *ahead_s;
    const auto is_likely = [&](double now_s) {
        return now_s > heard_s - early_s && now_s < heard_s + server_silence_s;
    };
    if (heard_s <= 0 || is_likely(here_s)) return here_s;
    const double by_files_s = here_s + ahead_of_files_s(log_).value_or(0);
    return is_likely(by_files_s) ? by_files_s : here_s;
}

RunClock read_run_clock(const fs::path& folder) try {
    return RunClock(read_log_facts(folder), folder / "rank-00000.jsonl");
} catch (const Error&) {
    return {};
}

std::string_view run_condition_name(RunCondition condition) {
    return condition_names.at(static_cast<std::size_t>(condition));
}

void check_is_there(const fs::path& root) {
    check(is_there(root, root), [&] {
        return Error(
            "E201", fmt::format("'{}' does not exist", root.string()), "", "give a run directory");
    });
}

bool is_run(const fs::path& root) {
    return is_there(RunPaths{root}.record(), root) || is_there(RunPaths{root}.lock(), root);
}

RunStatus read_run_status(const fs::path& root, const StatusClues& clues, StatusDepth depth) {
    check_run(root);
    RunStatus status{.root = root, .saved_step = clues.saved_step};
    RunHolder holder = read_run_holder(RunPaths{root}.lock());
    status.incarnation = read_incarnation(root);
    const auto state = read_run_state(root);
    // A start that took the lock since then has written this state: it is not lost.
    if (!holder.is_held) holder = read_run_holder(RunPaths{root}.lock());
    // A sign of life from the future is one of a wrong clock, and says nothing of now.
    const bool is_credible = clues.heartbeat_unix_s <= clues.now_unix_s + early_s;
    const double sign_s = std::max(is_credible ? clues.heartbeat_unix_s : 0,
                                   newest_write_unix_s(root, status.incarnation, clues.now_unix_s));
    if (sign_s > 0) status.sign_of_life_s = std::max(clues.now_unix_s - sign_s, 0.0);
    const bool is_attended =
        holder.is_held || (!clues.has_ended && is_somebody_there(holder, status.sign_of_life_s));
    status.condition = condition_of(is_attended, state, status.incarnation);
    if (status.is_alive() && !clues.trouble.empty()) {
        status.condition = RunCondition::stuck;
        status.trouble = clues.trouble;
    }
    status.is_held = holder.is_held;
    if (holder.pid > 0)
        status.holder =
            fmt::format("process {} on {} since {}", holder.pid, holder.host, holder.since);
    if (state) {
        status.step = state->step;
        status.steps_total = state->steps_total;
        status.epoch = state->epoch;
        status.reason = printable(state->reason);
        status.exit = state->exit;
        status.answered = state->answered;
    }
    // The reason from the time when it ran does not explain why it is lost.
    if (status.condition == RunCondition::lost) status.reason.clear();
    if (is_attended) status.asked = unmet_request(status);
    if (depth == StatusDepth::history) add_history(status, clues);
    return status;
}

std::vector<fs::path> find_runs(const fs::path& folder) {
    check(!is_there(folder, folder) || fs::is_directory(status_of(folder)), [&] {
        return Error("E201",
                     fmt::format("'{}' is no folder", folder.string()),
                     "",
                     "give a folder with run directories in it");
    });
    check_is_there(folder);
    std::vector<fs::path> runs;
    add_runs(folder, 0, runs);
    std::ranges::sort(runs);
    return runs;
}

bool RunStatus::fails_again() const {
    if (condition != RunCondition::failed) return false;
    using enum ExitCode;
    constexpr std::array lasting = {
        usage, bad_data, missing_input, bug, cannot_create, io, permission, config};
    return std::ranges::count(lasting, static_cast<ExitCode>(exit)) > 0;
}

std::string_view going_on_label(const RunStatus& status) {
    return status.fails_again() ? "to resume, after that is fixed" : "to go on";
}

std::string status_text(const RunStatus& status) {
    std::string text = fmt::format("{}: {}, start {}\n",
                                   printable(status.root.string()),
                                   run_condition_name(status.condition),
                                   status.incarnation);
    text += row("step", fmt::format("{}, epoch {}", step_text(status), status.epoch));
    if (status.is_alive()) text += row("done in", eta_text(status));
    const std::int64_t saved = status.saved_step;
    text += row("saved", saved < 0 ? "no checkpoint" : fmt::format("step {}", saved));
    text += row("reason", status.reason);
    if (status.reported_s >= 0)
        text += row("reported", duration_text(status.reported_s) + " ago, for the last time");
    text += row("trouble", printable(status.trouble));
    text += row("lost", loss_text(status));
    if (status.is_alive()) text += row("held by", status.holder);
    if (status.is_alive() && status.sign_of_life_s >= 0)
        text += row("last sign", duration_text(status.sign_of_life_s) + " ago");
    text += row("asked", request_text(status.asked));
    for (const StartRecord& start : status.starts)
        text += row(&start == &status.starts.front() ? "starts" : "", start_text(start));
    text += row("goodput", goodput_text(status.times));
    text += row("lost time", lost_text(status.times));
    return text;
}

std::string status_table(std::span<const RunStatus> runs, std::span<const RunColumn> more) {
    std::vector<std::vector<std::string>> rows{
        {"run", "phase", "step", "done in", "starts", "lost", "goodput"}};
    for (const RunStatus& run : runs) {
        const RunTimes& times = run.times;
        rows.push_back({run.root.string(),
                        std::string(run_condition_name(run.condition)),
                        step_text(run),
                        eta_text(run),
                        fmt::format("{}", run.incarnation),
                        times.elapsed > 0 ? duration_text(times.lost()) : "-",
                        share_text(times.training, times.elapsed)});
    }
    for (const RunColumn& column : more) {
        rows[0].push_back(column.name);
        for (std::size_t i = 0; i < runs.size(); ++i) rows[i + 1].push_back(column.cells[i]);
    }
    return text_table(rows, Align::left, Align::right, "");
}

Json status_json(const RunStatus& status) {
    const RunTimes& times = status.times;
    Json json{{"run", status.root.string()},
              {"phase", run_condition_name(status.condition)},
              {"alive", status.is_alive()},
              {"incarnation", status.incarnation},
              {"step", status.step},
              {"steps_total", status.steps_total},
              {"epoch", status.epoch},
              {"saved_step", status.saved_step},
              {"reason", status.reason},
              {"exit", status.exit}};
    json["eta_s"] = status.eta_s < 0 ? Json() : Json(status.eta_s);
    json["trouble"] = status.trouble.empty() ? Json() : Json(status.trouble);
    json["reported_s"] = status.reported_s < 0 ? Json() : Json(status.reported_s);
    json["sign_of_life_s"] = status.sign_of_life_s < 0 ? Json() : Json(status.sign_of_life_s);
    json["asked"] = status.asked ? Json(control_action_name(status.asked->action)) : Json();
    json["goodput"] = times.elapsed > 0 ? Json(times.goodput()) : Json();
    json["starts"] = Json::array();
    for (const StartRecord& start : status.starts)
        json["starts"].push_back({{"incarnation", start.incarnation},
                                  {"began", utc_text(start.began_unix_s)},
                                  {"ended", utc_text(start.ended_unix_s)},
                                  {"from_step", start.from_step},
                                  {"to_step", start.to_step}});
    json["seconds"] = Json();
    if (times.elapsed <= 0) return json;  // not known
    json["seconds"] = {{"elapsed", times.elapsed},
                       {"training", times.training},
                       {"repeated", times.repeated},
                       {"saving", times.saving},
                       {"evaluating", times.evaluating},
                       {"starting", times.starting},
                       {"down", times.down},
                       {"other", times.other}};
    return json;
}

}  // namespace lockstep
