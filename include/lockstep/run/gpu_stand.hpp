// SPDX-License-Identifier: Apache-2.0
/// @file
/// How far a rank's GPU has come, as its host sees it from outside while it waits long.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lockstep {

/// Where a GPU is. The numbers are part of the format of ring files.
enum class GpuPlace : std::uint8_t {
    before = 1,  ///< in work that comes before the collective
    inside = 2,  ///< in the collective
    silent = 3,  ///< in the collective, and it does not even copy some bytes beside it
};

/// The first collective of an Exchange that a GPU has not finished.
struct GpuStand {
    std::int64_t step = 0;              ///< publish() calls before it
    int bucket = -1;                    ///< of reduce(); -1: publish()
    int round = 0;                      ///< of the collective's groups, one behind the other
    GpuPlace place = GpuPlace::before;  ///< where the GPU is
    std::vector<int> missing = {};      ///< ranks whose part has not arrived, where that is known
    int arrived = 0;                    ///< how many others' parts have
};

/// Told again and again while a wait lasts; nothing: it is over.
using StandListener = std::function<void(const std::optional<GpuStand>&)>;

}  // namespace lockstep
