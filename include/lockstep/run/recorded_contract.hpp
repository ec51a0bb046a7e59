// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an existing run says of the bits that it is made of.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// What to do where a run would go on with other bits.
enum class OtherBits { refuse, accept };

/// run.json's contract, and that of the newest checkpoint that can be read; either may be missing,
/// and both are for a new run. Errors: E222 of run.json; E306 for a run of an earlier version that
/// rounded gradients between ranks.
std::vector<BitContract> recorded_contracts(const std::filesystem::path& run);

/// The settings of the first of `recorded` that has some; an empty object where none has.
Json recorded_settings(const std::vector<BitContract>& recorded);

/// Compares `now` with each of `recorded`, and its canary with that of the last: what the run goes
/// on from. Returns a warning about a canary that is accepted. Errors: E306 naming settings and
/// their `origins`; E710 naming both processors.
std::optional<std::string> check_recorded(const std::filesystem::path& run,
                                          const std::vector<BitContract>& recorded,
                                          const BitContract& now,
                                          const Json& origins,
                                          OtherBits other);

}  // namespace lockstep
