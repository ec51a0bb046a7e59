// SPDX-License-Identifier: Apache-2.0
// The ways of reading a data set, each ready to be timed.
#pragma once

#include "lockstep/data/measure_io.hpp"

#include "measure/portion.hpp"
#include "stream/memory.hpp"

#include <memory>
#include <span>

namespace lockstep {

/// What one timed pass did.
struct Pass {
    double seconds = 0, first_s = 0;
    std::uint64_t bytes = 0, stored_bytes = 0;
    StreamStats spent;
};

/// All that the ways share; made once.
struct IoBench {
    IoBench(std::shared_ptr<const DatasetIndex> opened, const IoPlan& plan_of);

    /// This thread's share of the ring.
    std::span<std::byte> ring_part(int thread, int threads) const;

    /// How often a hot pass reads the portion.
    std::uint64_t hot_repeats() const;

    const IoPlan& plan;
    std::shared_ptr<const DatasetIndex> index;
    Portion portion;
    Memory ring;  ///< touched already
};

/// Reads the portion `repeats` times in all with `threads`.
Pass run_way(const IoBench& bench, IoWay way, int threads, std::uint64_t repeats);

}  // namespace lockstep
