// SPDX-License-Identifier: Apache-2.0
// Writes one shard: blocks of rows, their index, and what the shard says about itself.
#pragma once

#include "lockstep/data/manifest.hpp"

#include "format/codec.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

namespace lockstep {

/// What a shard is told about the data set it belongs to; `manifest.shards` need not be complete.
struct ShardPlan {
    const Manifest& manifest;
    std::filesystem::path path;
    std::size_t number = 0, count = 1;
    std::uint64_t first_sample = 0, samples = 0;
};

/// Fills `out` with row `row` (global, in the data set's order) of field number `field`.
using RowReader =
    std::function<void(std::size_t field, std::uint64_t row, std::span<std::byte> out)>;

/// Called with the global number of the sample after each block.
using BlockReport = std::function<void(std::uint64_t)>;

/// Writes the shard, closes and flushes it, and returns its manifest entry.
/// Errors: E401, E402, E405; E700 if a block does not decode to what was encoded.
Shard write_shard(const ShardPlan& plan,
                  const RowReader& rows,
                  Encoder& encoder,
                  const BlockReport& report);

/// XXH3-128 of a whole file, as hexadecimal digits. Errors: those of reading.
std::string file_hash(const std::filesystem::path& path,
                      const std::function<void(std::uint64_t)>& report = {});

}  // namespace lockstep
