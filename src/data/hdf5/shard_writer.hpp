// SPDX-License-Identifier: Apache-2.0
// Writes one shard: blocks of rows, their index, and the shard's own description.
#pragma once

#include "lockstep/data/manifest.hpp"

#include "format/codec.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

namespace lockstep {

/// A shard by its number, of which `manifest` has the samples, and the file to write.
struct ShardSpec {
    const Manifest& manifest;
    std::size_t number = 0;
    fs::path path;

    const Shard& shard() const { return manifest.shards[number]; }
};

/// Fills `out` with row `row` (global, in the data set's order) of field number `field`. Several
/// threads call it at once.
using RowReader =
    std::function<void(std::size_t field, std::uint64_t row, std::span<std::byte> out)>;

/// Called with the global number of the sample after each block.
using BlockReport = std::function<void(std::uint64_t)>;

/// Settings of encoding: on `threads` threads (>= 1), besides the one that writes.
struct Encoding {
    Codec codec = Codec::none;
    int level = 0, threads = 1;
};

/// Writes the shard, closes and flushes it, and returns its manifest entry. Rows are read, encoded
/// and hashed on threads and written in order by this one, the only one that calls libhdf5; the
/// bytes do not depend on the threads. A failure leaves an unfinished file. Errors: E102 (level),
/// E401, E402, E405; E700 if a block does not decode to what was encoded.
Shard write_shard(const ShardSpec& spec,
                  const RowReader& rows,
                  const Encoding& encoding,
                  const BlockReport& report);

}  // namespace lockstep
