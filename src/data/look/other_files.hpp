// SPDX-License-Identifier: Apache-2.0
// Whether further files are like the one that is looked into.
#pragma once

#include "opening/contents.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Of so many at most it is found out, from all over them: a child process looks at each.
inline constexpr std::size_t most_compared_files = 16;

/// Files beside the first.
struct OtherFiles {
    std::uint64_t files = 0, compared = 0;
    std::uint64_t alike = 0;  ///< have data sets of the same names, types and shapes of a sample
    std::string difference;   ///< of the first that is not alike; "" if all are
};

/// Compares what they list with `first`, the list of the first file. Throws nothing for a file that
/// cannot be read: that is its difference.
OtherFiles compare_files(const std::vector<Candidate>& first, std::span<const fs::path> others);

/// One line; "" if there are none.
std::string others_text(const OtherFiles& others);

}  // namespace lockstep
