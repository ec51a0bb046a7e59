// SPDX-License-Identifier: Apache-2.0
// What numbers there are.
#pragma once

#include "sampled_rows.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

/// Of those that are finite; `count` 0: there are none.
struct ValueSummary {
    double least = 0, most = 0, mean = 0;
    std::uint64_t count = 0, not_finite = 0;
    bool are_whole = true;
};

/// Number `i` of rows of any type.
double value_at(ElementType type, std::span<const std::byte> rows, std::size_t i);

ValueSummary summary_of(const SampledRows& sample);

/// Whether each row, of several numbers, has one 1, and 0 elsewhere.
bool is_one_hot(const SampledRows& sample);

/// "0 .. 255, mean 72.9", and how many are not finite.
std::string range_text(const ValueSummary& summary);

/// How often each whole number occurs; nothing of real ones, or where there are over 1,000.
std::map<std::int64_t, std::uint64_t> whole_counts(const SampledRows& sample);

}  // namespace lockstep
