// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_figures.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

// Returns nothing if the files do not tell.
std::vector<Straggler> slow_ranks(const fs::path& run, std::int64_t incarnation) {
    try {
        return find_stragglers(read_rank_figures(run, incarnation));
    } catch (const Error&) {
        return {};
    }
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

}  // namespace

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

}  // namespace lockstep
