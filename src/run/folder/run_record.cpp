// SPDX-License-Identifier: Apache-2.0
// Converts run.json and state.json to values. The version in run.json is that of the whole run
// directory: of state.json, control.json, logs and metrics too, in which later versions only add
// fields.
#include "run_record.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/record.hpp"

#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <sys/random.h>

namespace lockstep {
namespace {

constexpr std::int64_t format_version = 1;
constexpr std::size_t most_record_bytes = 4 << 20;  // as values it takes many times as much
constexpr std::array<std::string_view, 4> phase_names{
    "running", "checkpointed", "complete", "failed"};

std::string pretty(const Json& json) {
    return json.dump(2) + '\n';
}

}  // namespace

std::string random_run_id() {
    std::array<std::uint64_t, 2> words{};
    if (::getrandom(words.data(), sizeof(words), 0) != sizeof(words)) {
        throw system_error("read", "getrandom", errno);
    }
    return hex64(words[0]) + hex64(words[1]);
}

// The schema of run.json.
void describe(Record& file, RunRecord& run) {
    file.mark("format", "lockstep-run");
    file.version("format_version", format_version);
    file.field("run_id", run.run_id);
    file.field("created_at", run.created_at);
    file.field("created_by", run.created_by);
    file.later("created_in", run.created_in);
    file.field("contract", run.contract);
    file.field("deciding", run.deciding);
    file.field("config", run.config);
    file.field("versions", run.versions);
}

// The schema of state.json; states of earlier versions lack some fields.
void describe(Record& file, RunState& state) {
    file.field("phase", state.phase, phase_names);
    file.field("step", state.step);
    file.field("epoch", state.epoch);
    file.field("reason", state.reason);
    file.field("exit", state.exit);
    file.later("steps_total", state.steps_total);
    file.later("epochs", state.epochs);
    file.later("max_steps", state.max_steps);
    file.later("incarnation", state.incarnation);
    file.later("answered", state.answered);
    file.field("updated", state.updated);
}

std::string record_text(const RunRecord& record) {
    return pretty(json_of_record(record));
}

RunRecord read_run_record(const fs::path& root) {
    const auto path = RunPaths{root}.record();
    std::error_code failed;
    check(!fs::is_directory(root, failed) || fs::exists(path, failed) || failed, [&] {
        return Error("E201",
                     fmt::format("'{}' is no run", root.string()),
                     "it has no run.json",
                     "give the folder that was given to 'train --run'");
    });
    return record_from_json<RunRecord>(read_json(path, most_record_bytes), path.string());
}

std::string_view run_phase_name(RunPhase phase) {
    return phase_names.at(static_cast<std::size_t>(phase));
}

std::string state_text(const RunState& state, std::int64_t incarnation) {
    RunState now = state;
    now.incarnation = incarnation;
    now.updated = utc_text(unix_time_s());
    return pretty(json_of_record(now));
}

std::optional<RunState> read_run_state(const fs::path& root) {
    const auto path = RunPaths{root}.state();
    if (!fs::exists(status_of(path))) return {};
    return record_from_json<RunState>(read_json(path, most_record_bytes), path.string());
}

}  // namespace lockstep
