// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests of a user that a run saves or stops, by a file in its directory.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

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

/// Paths of a request before it is read, and until it is met.
struct ControlPaths {
    fs::path root;

    fs::path asked() const { return root / "control.json"; }  ///< path before it is read

    /// Returns the path until it is met.
    fs::path taken() const { return root / "control.taken.json"; }
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

    ControlPaths paths_;
    std::int64_t incarnation_;
    double looked_s_ = -pause_s;
    std::optional<ControlRequest> pending_;
    std::string answered_;
};

}  // namespace lockstep
