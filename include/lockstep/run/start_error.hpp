// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `logs --first-error` says of a start: what went wrong; where nothing did, who slows it
/// down.
#pragma once

#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/stragglers.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// One of both, or neither.
struct FirstError {
    std::optional<RootCause> cause{};
    std::vector<Straggler> slow{};  ///< ranks that others wait for, as `report` has them
    std::string next{};             ///< the command to type next
};

/// Of start `incarnation`. Errors: E201.
FirstError first_error(const RunStatus& status, std::int64_t incarnation);

/// A few lines: rank, node, what and why, and what to try.
std::string first_error_text(const RunStatus& status,
                             std::int64_t incarnation,
                             const FirstError& found);

/// The same for programs: `kind` is error, verdict or slow, and missing where nothing is wrong.
Json json_of(const FirstError& found);

}  // namespace lockstep
