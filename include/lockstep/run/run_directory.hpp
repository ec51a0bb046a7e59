// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's directory: its owner, the number of its starts, its progress, and the requests of users
/// that it saves or stops.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Paths in a run's directory. It is a plain value: other ranks make it from path and incarnation.
struct RunPaths {
    fs::path root;

    fs::path record() const { return root / "run.json"; }   ///< RunRecord, written once
    fs::path state() const { return root / "state.json"; }  ///< RunState, replaced often
    fs::path lock() const { return root / "run.lock"; }     ///< held by rank 0

    /// Returns the path of a ControlRequest before it is read.
    fs::path asked() const { return root / "control.json"; }

    /// Returns its path until it is met.
    fs::path taken() const { return root / "control.taken.json"; }

    /// Returns the path of the number of the newest start.
    fs::path incarnation() const { return root / "incarnation"; }

    /// Returns the path of the file with one line for each report, of all starts.
    fs::path metrics() const { return root / "metrics.jsonl"; }
    /// Returns the confusion matrix of the last evaluation.
    fs::path confusion() const { return root / "confusion.csv"; }

    /// Returns the folder of checkpoints, which for a time also holds unfinished ones.
    fs::path checkpoints() const { return root / "ckpt"; }
    fs::path ledger() const { return root / "ledger"; }  ///< with --ledger

    /// Returns the path of the description of the training data, which prediction needs.
    fs::path data() const { return root / "data.json"; }

    /// Returns the path of the copy of the model's file `name`, whose hash is `digest`.
    fs::path model(const std::string& digest, const fs::path& name) const {
        return root / "model" / digest / name.filename();
    }
    fs::path logs(std::int64_t incarnation) const;  ///< logs of that start

    /// Returns the folder of a start with its own `mark` before it holds the run; removed with it.
    fs::path starting(const std::string& mark) const { return root / ("starting-" + mark); }

    /// Returns the folder of that start's flight records.
    fs::path flight(std::int64_t incarnation) const { return logs(incarnation) / "flight"; }
};

/// The facts that a run was created with; written once, never changed.
struct RunRecord {
    std::string run_id{};          ///< 32 hexadecimal digits; filled in by create()
    std::string created_at{};      ///< UTC; filled in by create()
    std::string created_by{};      ///< "user@host"; filled in by create()
    std::string created_in{};      ///< rank 0's working folder, to which relative paths of `config`
                                   ///< refer; filled in by create(); "" by earlier versions
    Json config = Json::object();  ///< {key: {value, origin}}: every setting, for people
    Json deciding = Json::object();  ///< {key: value}: settings that decide the result
    Json contract = Json::object();  ///< virtual ranks, threads, instruction set, seed, order
    Json versions = Json::object();  ///< versions of Lockstep and its libraries
};

/// Returns true for settings that each start is told anew, such as its deadline: runs do not differ
/// by them.
bool is_of_start(std::string_view name);

/// Reads run.json of the run in `root`. Errors: E201, E222.
RunRecord read_run_record(const fs::path& root);

/// The progress of a run.
enum class RunPhase { running, checkpointed, complete, failed };
std::string_view run_phase_name(RunPhase phase);  ///< the enumerator's name, as in state.json

/// The progress of a run. It decides success, because mpirun's exit code cannot.
struct RunState {
    RunPhase phase = RunPhase::running;
    std::int64_t step = 0, epoch = 0;
    std::string reason{};          ///< reason for people
    int exit = 0;                  ///< exit code of the phase
    std::string updated{};         ///< UTC; filled in when written
    std::int64_t steps_total = 0;  ///< steps of the whole run; 0: unknown
    std::int64_t epochs = 0;       ///< --epochs of that start; 0: unknown
    std::int64_t max_steps = 0;    ///< its --max-steps; 0: --epochs decided
    std::int64_t incarnation = 0;  ///< number of the start that wrote it; filled in when written
    std::string answered{};        ///< id of the newest control request that was met
};

/// Reads state.json of the run in `root`; nothing if there is none yet. Errors: E222.
std::optional<RunState> read_run_state(const fs::path& root);

/// Returns the number of the newest incarnation of the run in `root`, or 0. Errors: E222.
std::int64_t read_incarnation(const fs::path& root);

/// Marks the run as failed in place of rank 0, which may be stuck or gone; step and epoch stay.
/// Errors: E222; E408 unless `incarnation` is the newest.
void write_failed_state(const fs::path& root,
                        std::int64_t incarnation,
                        const std::string& reason,
                        ExitCode exit);

/// Marks the run as ended by a signal, at `step` of its newest checkpoint (0: there is none), in
/// place of a rank 0 that ended before it could. Errors: as write_failed_state().
void write_stopped_state(const fs::path& root,
                         std::int64_t incarnation,
                         std::int64_t step,
                         ExitCode exit);

/// Compares settings that decide bits with those of the run in `root`. Errors: E306 naming each key
/// that differs with both values, and the origin of the new one if `origins` ({key: text}) has it.
void check_same_deciding(const fs::path& root,
                         const Json& recorded,
                         const Json& deciding,
                         const Json& origins = Json::object());

/// The kinds of requests.
enum class ControlAction {
    save,                   ///< a checkpoint after the next step, then continue
    stop,                   ///< a checkpoint after the next step, then end
    stop_after_checkpoint,  ///< end with the next checkpoint that is due anyway
    stop_now,               ///< end after the next step without a checkpoint
};
std::string_view control_action_name(ControlAction action);  ///< name in the file

/// One request. It is for one incarnation: no later one obeys it.
struct ControlRequest {
    std::string id{};  ///< 32 hexadecimal digits
    ControlAction action = ControlAction::save;
    std::int64_t incarnation = 0;
    std::string by{};     ///< "user@host"
    std::string asked{};  ///< UTC
};

/// Sends a request to incarnation `incarnation` of the run in `root`; replaces a request that has
/// not been read. Errors: E402, E405, those of system_error().
ControlRequest ask_run(const fs::path& root, ControlAction action, std::int64_t incarnation);

/// Reads the request in `path`; nothing if there is none. Errors: E222, E406, E202.
std::optional<ControlRequest> read_control_request(const fs::path& path);

/// Receives requests in the run, on rank 0. It takes them by rename, so that none is lost between
/// reading and removing. A request that cannot be read, or is for another incarnation, is removed
/// with a warning.
class ControlBox {
  public:
    /// Receives requests to start `incarnation` of the run in `root`.
    ControlBox(const fs::path& root, std::int64_t incarnation)
        : paths_{root}, incarnation_(incarnation) {}

    /// Returns the newest request that was not met yet. Reads the file system at most once in
    /// `pause_s`; `time_s` is that of now_s().
    const std::optional<ControlRequest>& poll(double time_s);

    /// Returns the last result of poll(), until that request is met.
    const std::optional<ControlRequest>& pending() const { return pending_; }

    /// Marks the pending request as met.
    void answer();

    /// Returns the id of the request that was met last; "" before the first.
    const std::string& answered() const { return answered_; }

    static constexpr double pause_s = 1;  ///< between two reads of the file system

  private:
    void take();

    RunPaths paths_;
    std::int64_t incarnation_;
    double looked_s_ = -pause_s;
    std::optional<ControlRequest> pending_;
    std::string answered_;
};

/// Rank 0's ownership of a run. From construction to destruction no other process can open the same
/// directory. Move-only.
class RunDirectory {
  public:
    /// Creates the directory (0700) or opens an existing run, and takes its lock. It waits up to
    /// `wait_s`, because ranks of a killed job need a moment to end. Errors: E220 if a folder in it
    /// is a link; E401; E404 naming the holder; E407 if the folder holds something else.
    static RunDirectory open(const fs::path& root, double wait_s = 0);

    /// Moves ownership of the lock.
    RunDirectory(RunDirectory&&) noexcept = default;
    RunDirectory& operator=(RunDirectory&&) = delete;
    ~RunDirectory();

    const RunPaths& paths() const { return paths_; }  ///< paths of this run

    /// Returns true if create() has not been called yet; else record() is available.
    bool is_new() const { return !record_; }

    /// Writes run.json with a new run id. Only while is_new().
    const RunRecord& create(RunRecord record);

    /// Returns the record of the run's creation. Not while is_new().
    const RunRecord& record() const;

    /// Starts the next incarnation: increments the number and makes its folder of logs.
    std::int64_t begin_incarnation();

    /// Returns the number of begin_incarnation(); 0 before it.
    std::int64_t incarnation() const { return incarnation_; }

    /// Returns this incarnation's folder of logs.
    fs::path logs() const { return paths_.logs(incarnation_); }

    /// Checks that the number on disk is still this incarnation's. Call it before anything is
    /// committed. Errors: E408.
    void check_still_ours() const;

    /// Returns the request to this incarnation, until a state answers it. Reads the directory at
    /// most once a second, so that it may be called in every step.
    const std::optional<ControlRequest>& control_request();

    /// Replaces state.json. A state of this incarnation's end answers any control request that
    /// control_request() has shown; a state `running` answers a request to save. Errors: E408.
    void write_state(RunState state);

    /// Returns what writes `state`, which answers nothing, on any thread; no other state may be
    /// written at the same time. Borrows this. Errors: E408.
    std::function<void()> state_writer(RunState state) const;

    /// Returns warnings to show once, such as W402 (anyone may write here).
    std::vector<std::string> warnings() const;

  private:
    bool write_checked(const RunState& state) const;
    RunDirectory(RunPaths paths, UniqueFd lock)
        : paths_(std::move(paths)), lock_(std::move(lock)) {}

    RunPaths paths_;
    UniqueFd lock_;
    std::optional<RunRecord> record_;
    std::int64_t incarnation_ = 0;
    std::optional<ControlBox> control_;
};

}  // namespace lockstep
