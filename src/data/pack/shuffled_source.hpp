// SPDX-License-Identifier: Apache-2.0
// Rows in a random order, without reading anything at random: distributed to files, then sorted one
// file at a time in memory.
#pragma once

#include "lockstep/data/row_source.hpp"
#include "lockstep/data/team.hpp"

#include "workspace.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep {

/// How to shuffle, and with what.
struct ShuffleOptions {
    std::uint64_t seed = 0;
    std::filesystem::path beside;    ///< files go to a hidden folder beside this one
    std::uint64_t memory_bytes = 0;  ///< of each member
    int threads = 1;
    Team team;
};

/// Collective. `source` in the order that a pack with that seed gives it. The source is read once,
/// in order; the folder goes when the result does. `report` hears of rows done, scaled to all.
/// Errors: E403 (room for one copy), E404, and those of reading and writing.
std::unique_ptr<RowSource> shuffle_rows(const RowSource& source,
                                        const ShuffleOptions& options,
                                        const std::function<void(std::uint64_t)>& report);

}  // namespace lockstep
