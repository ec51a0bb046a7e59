// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs steps that succeed on all ranks or fail on all ranks with one message.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// The error that all ranks agreed on. Only the speaker (rank 0) shows it.
class AgreedError : public Error {
  public:
    /// `error` is shown; `failed`: ranks that failed with it; `ranks`: the same in words; `speaks`:
    /// true on the rank that shows it.
    AgreedError(const Error& error, std::vector<int> failed, std::string ranks, bool speaks)
        : Error(error), failed_(std::move(failed)), ranks_(std::move(ranks)), speaks_(speaks) {}
    const std::vector<int>& failed() const { return failed_; }  ///< the ranks that failed, in order
    const std::string& ranks() const { return ranks_; }  ///< "same on ranks 1-3", "ranks 2,5 only"

    /// Returns true on the rank that shows the error.
    bool speaks() const { return speaks_; }

  private:
    std::vector<int> failed_;
    std::string ranks_;
    bool speaks_;
};

/// Collective. `mine` is this rank's error, if it failed. Throws AgreedError on all ranks if any
/// failed: the error of the lowest failing rank, with the ranks that failed with the same text, and
/// with a last line in `why` that counts other errors.
void agree_on_failure(const Communicator& ranks, const std::optional<Error>& mine);

/// Collective. Runs `step` on every rank; returns its value, or throws AgreedError on all ranks.
template <class Step>
auto agree(const Communicator& ranks, Step&& step) {
    constexpr bool has_value = !std::is_void_v<decltype(step())>;
    std::optional<Error> failure;
    std::optional<std::conditional_t<has_value, decltype(step()), bool>> value;
    try {
        if constexpr (has_value)
            value.emplace(step());
        else
            step();
    } catch (const std::exception& error) {
        failure = as_error(error);
    }
    agree_on_failure(ranks, failure);
    if constexpr (has_value) return std::move(*value);
}

/// Collective. Runs `step` on rank 0 only and returns its bytes on all ranks, or fails on all.
std::string from_root(const Communicator& ranks, const std::function<std::string()>& step);

}  // namespace lockstep
