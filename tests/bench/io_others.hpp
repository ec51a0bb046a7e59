// SPDX-License-Identifier: Apache-2.0
// What the benchmark `io` measures beside `lockstep bench io`: what other programs would reach.
#pragma once

#include "lockstep/data/measure_io.hpp"
#include "lockstep/data/resident.hpp"

#include "stream/io_ways.hpp"

#include <memory>
#include <string>

namespace lockstep {

/// Ways of reading a packed data set whose files are in the page cache:
///   memcpy              the limit of memory: from as much memory as the data needs into a buffer
///   H5Dread             libhdf5, each thread with files of its own, block by block
///   H5Dread of batches  the same by batches, as a loader asks for rows (uncompressed data)
///   blocks, no hashes   the block reader without hashes, which libhdf5 has none of
///   resident            shuffled batches from memory that holds all rows; threads are ranks
class OtherWays {
  public:
    OtherWays(std::shared_ptr<const DatasetIndex> index, const IoPlan& plan);
    OtherWays(const OtherWays&) = delete;

    /// Runs each way once with each number of threads and adds rows like those of io_json().
    void add_pass(Json& results) const;

    /// Why H5Dread cannot be measured; "" if it can.
    const std::string& obstacle() const { return obstacle_; }

  private:
    IoPlan plan_;
    IoBench bench_, unhashed_;
    Pages source_;
    std::shared_ptr<const ResidentRows> resident_;
    std::string obstacle_;
    bool is_threadsafe_ = false;
};

}  // namespace lockstep
