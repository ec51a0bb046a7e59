// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's directory: its owner, the number of its starts, and its progress.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/control.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Paths in a run's directory. A plain value: other ranks make it from path and incarnation.
struct RunPaths {
    fs::path root;

    fs::path record() const { return root / "run.json"; }   ///< RunRecord, written once
    fs::path state() const { return root / "state.json"; }  ///< RunState, replaced again and again
    fs::path lock() const { return root / "run.lock"; }     ///< held by rank 0

    /// The number of the newest start.
    fs::path incarnation() const { return root / "incarnation"; }

    /// One line for each report, of all starts.
    fs::path metrics() const { return root / "metrics.jsonl"; }
    fs::path confusion() const { return root / "confusion.csv"; }  ///< of the last evaluation

    /// Committed ones and, for a while, unfinished ones.
    fs::path checkpoints() const { return root / "ckpt"; }
    fs::path ledger() const { return root / "ledger"; }  ///< with --ledger
    fs::path logs(std::int64_t incarnation) const;       ///< of that start

    /// What a start has before it holds the run, `mark` being its own; gone with it.
    fs::path starting(const std::string& mark) const { return root / ("starting-" + mark); }

    /// The flight records of that start.
    fs::path flight(std::int64_t incarnation) const { return logs(incarnation) / "flight"; }
};

/// What a run was created with; written once, never changed.
struct RunRecord {
    std::string run_id{};            ///< 32 hexadecimal digits; filled in by create()
    std::string created_at{};        ///< UTC; filled in by create()
    std::string created_by{};        ///< "user@host"; filled in by create()
    std::string created_in{};        ///< rank 0's folder, by which relative paths of `config` are
                                     ///< meant; filled in by create(); "" by earlier versions
    Json config = Json::object();    ///< {key: {value, origin}}: every setting, for people
    Json deciding = Json::object();  ///< {key: value}: settings that decide the result
    Json contract = Json::object();  ///< virtual ranks, threads, instruction set, seed, order
    Json versions = Json::object();  ///< of Lockstep and what it stands on
};

/// run.json of the run in `root`. Errors: E201, E222.
RunRecord read_run_record(const fs::path& root);

/// How far a run got.
enum class RunPhase { running, checkpointed, complete, failed };
std::string_view run_phase_name(RunPhase phase);  ///< the enumerator's word, as in state.json

/// How far a run got; decides success, as mpirun's exit code cannot.
struct RunState {
    RunPhase phase = RunPhase::running;
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    std::string reason{};          ///< in words, for people
    int exit = 0;                  ///< exit code that goes with the phase
    std::string updated{};         ///< UTC; filled in when written
    std::int64_t steps_total = 0;  ///< of the whole run; 0: not known
    std::int64_t incarnation = 0;  ///< which start wrote it; filled in when written
    std::string answered{};        ///< id of the newest control request that was met
};

/// state.json of the run in `root`, or nothing if there is none yet. Errors: E222.
std::optional<RunState> read_run_state(const fs::path& root);

/// The number of the newest incarnation of the run in `root`, 0 if none has begun. Errors: E222.
std::int64_t read_incarnation(const fs::path& root);

/// Marks the run as failed in place of rank 0, which may be stuck or gone; step and epoch stay as
/// they are. Errors: E222; E408 unless `incarnation` is the newest.
void write_failed_state(const fs::path& root,
                        std::int64_t incarnation,
                        const std::string& reason,
                        ExitCode exit);

/// Marks the run as ended by a signal, at `step` of its newest checkpoint (0: there is none), in
/// place of a rank 0 that was gone before it could. Errors: as write_failed_state().
void write_stopped_state(const fs::path& root,
                         std::int64_t incarnation,
                         std::int64_t step,
                         ExitCode exit);

/// Compares settings that decide bits with those that the run in `root` was made with. Errors: E306
/// naming each key that differs with both values, and the origin of the new one where `origins`
/// ({key: text}) has it.
void check_same_deciding(const fs::path& root,
                         const Json& recorded,
                         const Json& deciding,
                         const Json& origins = Json::object());

/// Rank 0's hold on a run. From construction to destruction no other process can open the same
/// directory. Move-only.
class RunDirectory {
  public:
    /// Creates the directory (0700) or opens one that is a run, and takes its lock, waiting up to
    /// `wait_s` because ranks of a killed job need a moment to die.
    /// Errors: E220 if a folder in it is a link; E401; E404 naming the holder; E407 if the folder
    /// holds something else.
    static RunDirectory open(const fs::path& root, double wait_s = 0);

    /// Moves the lock along.
    RunDirectory(RunDirectory&&) noexcept = default;
    RunDirectory& operator=(RunDirectory&&) = delete;
    ~RunDirectory();

    const RunPaths& paths() const { return paths_; }  ///< of this run

    /// Whether create() is still to be called; otherwise record() is there.
    bool is_new() const { return !record_; }

    /// Writes run.json with a new run id. Only while is_new().
    const RunRecord& create(RunRecord record);

    /// What the run was created with. Not while is_new().
    const RunRecord& record() const;

    /// Starts the next incarnation: counts up the number, makes its folder of logs.
    std::int64_t begin_incarnation();

    /// The number begin_incarnation() gave; 0 before.
    std::int64_t incarnation() const { return incarnation_; }

    /// This incarnation's folder of logs.
    fs::path logs() const { return paths_.logs(incarnation_); }

    /// Errors: E408 unless the number on disk is still this incarnation's. To be called before
    /// anything is committed.
    void check_still_ours() const;

    /// What somebody asks of this incarnation, until a state answers it. Looks into the directory
    /// at most once a second, so that it may be called in every step.
    const std::optional<ControlRequest>& control_request();

    /// Replaces state.json. A state that says how this incarnation ended answers any control
    /// request that control_request() has shown, one that still says `running` a request to save.
    /// Errors: E408.
    void write_state(RunState state);

    /// Things to tell the user once, such as W402 (anyone may write here).
    std::vector<std::string> warnings() const;

  private:
    RunDirectory(RunPaths paths, UniqueFd lock)
        : paths_(std::move(paths)), lock_(std::move(lock)) {}

    RunPaths paths_;
    UniqueFd lock_;
    std::optional<RunRecord> record_;
    std::int64_t incarnation_ = 0;
    std::optional<ControlBox> control_;
};

}  // namespace lockstep
