// SPDX-License-Identifier: Apache-2.0
/// @file
/// The processes that work together on one data set, with any kind of messages.
#pragma once

#include "lockstep/core/error.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// This process's place in a team; by default it is alone. All members see the same files. Members
/// call functions with a Team in the same order, from the one thread that communicates.
struct Team {
    int rank = 0;  ///< rank of this process
    int size = 1;  ///< number of members
    /// Collective. Returns the bytes of all members, by rank. Not needed by a single member.
    std::function<std::vector<std::string>(const std::string&)> all_gather;

    bool is_root() const { return rank == 0; }  ///< member 0 does the work that is done once
};

/// Collective. Returns the bytes of all members, by rank.
std::vector<std::string> gather(const Team& team, const std::string& bytes);

/// Collective. Throws, on all members, the failure of the lowest rank that has one.
void end_if_failed(const Team& team, const std::optional<Error>& mine);

/// Collective. Runs `step` on every member. Returns its value, or throws one error on all of them.
/// A single member gets its own exception unchanged.
template <class Step>
auto together(const Team& team, Step&& step) -> decltype(step()) {
    if (team.size == 1) return step();
    using Value = decltype(step());
    if constexpr (std::is_void_v<Value>) {
        together(team, [&] {
            step();
            return true;
        });
    } else {
        std::optional<Error> failure;
        std::optional<Value> value;
        try {
            value.emplace(step());
        } catch (const std::exception& error) {
            failure = as_error(error);
        }
        end_if_failed(team, failure);
        return std::move(*value);
    }
}

/// Collective. Returns the result of `step` on rank 0 on all members, or throws its error on all.
std::string by_root(const Team& team, const std::function<std::string()>& step);

}  // namespace lockstep
