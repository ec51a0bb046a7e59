// SPDX-License-Identifier: Apache-2.0
// run.json and state.json as values.
#include "run_record.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <sys/random.h>

namespace lockstep {
namespace {

constexpr std::int64_t format_version = 1;
constexpr std::array<std::string_view, 4> phase_names{
    "running", "checkpointed", "complete", "failed"};

Json object_field(const Json& object, const std::string& key, const std::string& origin) {
    auto value = json_field<Json>(object, key, origin);
    check(value.is_object(),
          [&] { return Error("E222", fmt::format("'{}': '{}' is no object", origin, key)); });
    return value;
}

/// States of earlier versions lack some fields.
template <class T>
T optional_field(const Json& object, const std::string& key, const std::string& origin) {
    return object.contains(key) ? json_field<T>(object, key, origin) : T{};
}

RunPhase parse_phase(const std::string& name, const std::string& origin) {
    const auto found = std::ranges::find(phase_names, name);
    check(found != phase_names.end(), [&] {
        return Error("E222",
                     fmt::format("'{}': phase is '{}'", origin, name),
                     "known are running, checkpointed, complete, failed");
    });
    return static_cast<RunPhase>(found - phase_names.begin());
}

std::string pretty(const Json& json) {
    return json.dump(2, Utf8::replace) + '\n';
}

}  // namespace

std::string random_run_id() {
    std::array<std::uint64_t, 2> words{};
    if (::getrandom(words.data(), sizeof(words), 0) != sizeof(words)) {
        throw system_error("read", "getrandom", errno);
    }
    return hex64(words[0]) + hex64(words[1]);
}

std::string record_text(const RunRecord& record) {
    return pretty(Json{{"format", "lockstep-run"},
                       {"format_version", format_version},
                       {"run_id", record.run_id},
                       {"created_at", record.created_at},
                       {"created_by", record.created_by},
                       {"contract", record.contract},
                       {"deciding", record.deciding},
                       {"config", record.config},
                       {"versions", record.versions}});
}

RunRecord read_run_record(const fs::path& root) {
    const auto path = RunPaths{root}.record();
    const auto json = read_json(path);
    const auto origin = path.string();
    const auto version = json_field<std::int64_t>(json, "format_version", origin);
    check(version == format_version, [&] {
        return Error("E305",
                     fmt::format("'{}' has format {}", origin, version),
                     fmt::format("this program reads format {}", format_version),
                     "use the version of lockstep that made this run");
    });
    return {.run_id = json_field<std::string>(json, "run_id", origin),
            .created_at = json_field<std::string>(json, "created_at", origin),
            .created_by = json_field<std::string>(json, "created_by", origin),
            .config = object_field(json, "config", origin),
            .deciding = object_field(json, "deciding", origin),
            .contract = object_field(json, "contract", origin),
            .versions = object_field(json, "versions", origin)};
}

std::string_view run_phase_name(RunPhase phase) {
    return phase_names.at(static_cast<std::size_t>(phase));
}

std::string state_text(const RunState& state, std::int64_t incarnation) {
    return pretty(Json{{"phase", run_phase_name(state.phase)},
                       {"step", state.step},
                       {"epoch", state.epoch},
                       {"reason", state.reason},
                       {"exit", state.exit},
                       {"steps_total", state.steps_total},
                       {"incarnation", incarnation},
                       {"answered", state.answered},
                       {"updated", utc_text(unix_time_s())}});
}

std::optional<RunState> read_run_state(const fs::path& root) {
    const auto path = RunPaths{root}.state();
    if (std::error_code failed; !fs::exists(path, failed)) return {};
    const auto json = read_json(path);
    const auto origin = path.string();
    return RunState{.phase = parse_phase(json_field<std::string>(json, "phase", origin), origin),
                    .step = json_field<std::int64_t>(json, "step", origin),
                    .epoch = json_field<std::int64_t>(json, "epoch", origin),
                    .reason = json_field<std::string>(json, "reason", origin),
                    .exit = static_cast<int>(json_field<std::int64_t>(json, "exit", origin)),
                    .updated = json_field<std::string>(json, "updated", origin),
                    .steps_total = optional_field<std::int64_t>(json, "steps_total", origin),
                    .incarnation = optional_field<std::int64_t>(json, "incarnation", origin),
                    .answered = optional_field<std::string>(json, "answered", origin)};
}

}  // namespace lockstep
