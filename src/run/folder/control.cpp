// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/run_directory.hpp"

#include "run_lock.hpp"

#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> action_names{
    "save", "stop", "stop after checkpoint", "stop now"};
constexpr std::size_t limit_bytes = 4096;

void remove_quietly(const fs::path& path) {
    std::error_code ignored;
    fs::remove(path, ignored);
}

}  // namespace

// The schema of control.json.
static void describe(Record& file, ControlRequest& request) {
    file.field("id", request.id);
    file.field("action", request.action, action_names);
    LOCKSTEP_EACH(file.field, request.incarnation, request.by, request.asked);
}

std::string_view control_action_name(ControlAction action) {
    return action_names.at(static_cast<std::size_t>(action));
}

ControlRequest ask_run(const fs::path& root, ControlAction action, std::int64_t incarnation) {
    ControlRequest request{.id = random_run_id(),
                           .action = action,
                           .incarnation = incarnation,
                           .by = user_at_host(),
                           .asked = utc_text(unix_time_s())};
    write_file_atomically(RunPaths{root}.asked(), json_of_record(request).dump(2) + '\n');
    return request;
}

// A pipe in this place must not stop its reader.
std::optional<ControlRequest> read_control_request(const fs::path& path) {
    std::error_code missing;
    const auto status = fs::symlink_status(path, missing);
    if (!fs::exists(status)) return {};
    const auto origin = path.string();
    check(fs::is_regular_file(status),
          [&] { return Error("E222", fmt::format("'{}' is no regular file", origin)); });
    auto request = record_from_json<ControlRequest>(read_json(path, limit_bytes), origin);
    request.by = printable(request.by);
    request.asked = printable(request.asked);
    return request;
}

const std::optional<ControlRequest>& ControlBox::poll(double time_s) {
    if (time_s - looked_s_ >= pause_s) {
        looked_s_ = time_s;
        take();
    }
    return pending_;
}

// No file in the folder may harm the training.
void ControlBox::take() {
    std::error_code missing;
    fs::rename(paths_.asked(), paths_.taken(), missing);
    if (missing) return;
    try {
        const auto request = read_control_request(paths_.taken());
        if (request && request->incarnation == incarnation_) {
            once(Level::info, "{} asks: {}", request->by, control_action_name(request->action));
            pending_ = request;
            return;
        }
        once(Level::warn, "a request to an earlier start of the run was found; it is ignored");
    } catch (const std::exception& error) {
        once(Level::warn, "a request that cannot be read is ignored: {}", error.what());
    }
    remove_quietly(paths_.taken());
}

void ControlBox::answer() {
    if (!pending_) return;
    answered_ = pending_->id;
    pending_.reset();
    remove_quietly(paths_.taken());
}

}  // namespace lockstep
