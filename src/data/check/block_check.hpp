// SPDX-License-Identifier: Apache-2.0
// Checks one block whose bytes are already in memory.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/check.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/team.hpp"

#include "format/codec.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// One block of a shard: which, and where.
struct PlacedBlock {
    std::size_t field = 0;
    std::size_t number = 0;  ///< within the shard
    StoredBlock block;
};

/// [offset, offset + bytes) of a file, with the blocks that lie in it.
struct FileSegment {
    std::uint64_t offset = 0, bytes = 0;
    std::vector<PlacedBlock> blocks;
};

/// Segments, end to end, and blocks that are in none of them.
struct SegmentPlan {
    std::vector<FileSegment> segments;  ///< cover [0, file_bytes)
    std::vector<PlacedBlock> cut_off;   ///< reach beyond the end of the file
    std::vector<PlacedBlock> overlaps;  ///< begin before the end of another
};

/// Cuts a file of `file_bytes` with the blocks `blocks` (by field) into segments of about
/// `usual_bytes`; one block may be larger.
SegmentPlan plan_segments(const std::vector<std::vector<StoredBlock>>& blocks,
                          std::uint64_t file_bytes,
                          std::uint64_t usual_bytes);

/// "what: why".
std::string sentence(const Error& error);

/// Checks blocks of one shard. One thread.
class BlockCheck {
  public:
    BlockCheck(const Manifest& manifest, std::size_t shard, fs::path path)
        : manifest_(manifest), shard_(shard), path_(std::move(path)) {}

    bool is_intact(const PlacedBlock& placed, std::span<const std::byte> stored) const;

    /// Compares the hash, decodes, and checks labels.
    std::optional<Finding> check(const PlacedBlock& placed, std::span<const std::byte> stored);

    /// Makes a finding about all of `placed`. `why` may be empty.
    Finding finding(const PlacedBlock& placed,
                    const std::string& code,
                    const std::string& why) const;

  private:
    std::optional<Finding> check_labels(const PlacedBlock& placed,
                                        std::span<const std::byte> rows) const;

    const Manifest& manifest_;
    std::size_t shard_;
    fs::path path_;
    Decoder decoder_;
    std::vector<std::byte> decoded_;
};

/// Collective. Everyone's findings, group after group, each in the order of the members. All have
/// as many groups.
std::vector<Finding> merged(const Team& team, const std::vector<std::vector<Finding>>& mine);

}  // namespace lockstep
