// SPDX-License-Identifier: Apache-2.0
/// @file
/// The verdict of a run that was given up: written once, by whoever speaks for all.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/run/verdict.hpp"

#include <optional>

namespace lockstep {

/// `folder`/verdict.json
fs::path verdict_path(const fs::path& folder);

/// As verdict.json has it.
Json json_of(const Verdict& verdict);

/// Whether the caller is the first to give a verdict on the ranks that record in `folder`, and so
/// the one to show it. Also true where nothing can be written: better twice than never.
bool claim_verdict(const fs::path& folder, const Verdict& verdict);

/// A launcher that hears a verdict has ended all ranks so long after.
inline constexpr double heard_within_s = 3;

/// Whether a verdict has ended nobody within `patience_s` and was said on another node than this:
/// that has lost the launcher, or the network, and somebody else must say it.
bool is_unheard_verdict(const fs::path& folder, double patience_s);

/// The verdict that was given. Errors: E222 if the file makes no sense.
std::optional<Verdict> read_verdict(const fs::path& folder);

}  // namespace lockstep
