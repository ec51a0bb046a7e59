// SPDX-License-Identifier: Apache-2.0
// The ways of reading a data set, each ready to be timed.
#pragma once

#include "lockstep/data/measure_io.hpp"
#include "lockstep/data/resident.hpp"

#include "measure/portion.hpp"
#include "stream/memory.hpp"

#include <memory>
#include <string>
#include <vector>

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
    std::shared_ptr<const DatasetIndex> index, unhashed;  ///< unhashed: null if no block has a hash
    Portion portion;
    Memory source, ring;                           ///< touched already
    std::shared_ptr<const ResidentRows> resident;  ///< null if not wanted, or too large
};

/// Why `way` cannot be measured here; "" if it can.
std::string obstacle(const IoBench& bench, IoWay way, int threads);

/// Reads the portion `repeats` times in all with `threads`.
Pass run_way(const IoBench& bench, IoWay way, int threads, std::uint64_t repeats);

/// libhdf5's way; in a file of its own, as it is the only one that sees HDF5.
Pass run_h5dread(const IoBench& bench, IoWay way, int threads, std::uint64_t repeats);
std::string h5dread_obstacle(const IoBench& bench, IoWay way, int threads);

}  // namespace lockstep
