// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_status.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/run_directory.hpp"

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
    const ControlPaths paths{status.root};
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

}  // namespace lockstep
