// SPDX-License-Identifier: Apache-2.0
// Writes one shard: blocks of rows, their index, and what the shard says about itself.
#pragma once

#include "lockstep/data/manifest.hpp"

#include "format/codec.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

namespace lockstep {

/// What a shard is told about the data set it belongs to; `manifest.shards` need not be complete.
struct ShardSpec {
    const Manifest& manifest;
    std::filesystem::path path;
    std::size_t number = 0, count = 1;
    std::uint64_t first_sample = 0, samples = 0;
};

/// Fills `out` with row `row` (global, in the data set's order) of field number `field`. Called by
/// several threads at once.
using RowReader =
    std::function<void(std::size_t field, std::uint64_t row, std::span<std::byte> out)>;

/// Called with the global number of the sample after each block.
using BlockReport = std::function<void(std::uint64_t)>;

/// How blocks are made: on `threads` threads (>= 1), beside the one that writes.
struct Encoding {
    Codec codec = Codec::none;
    int level = 0;
    int threads = 1;
};

/// Writes the shard, closes and flushes it, and returns its manifest entry. Rows are read, encoded
/// and hashed on threads and written in order by this one, the only one that calls libhdf5; the
/// bytes do not depend on the threads. What fails leaves an unfinished file behind.
/// Errors: E102 (level), E401, E402, E405; E700 if a block does not decode to what was encoded.
Shard write_shard(const ShardSpec& spec,
                  const RowReader& rows,
                  const Encoding& encoding,
                  const BlockReport& report);

/// XXH3-128 of a whole file, as hexadecimal digits. Errors: those of reading.
std::string file_hash(const std::filesystem::path& path,
                      const std::function<void(std::uint64_t)>& report = {});

}  // namespace lockstep
