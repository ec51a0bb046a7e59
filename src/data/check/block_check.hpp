// SPDX-License-Identifier: Apache-2.0
// Checks one block whose bytes are already in memory.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/verify.hpp"

#include "format/codec.hpp"
#include "shard_segments.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Returns "what: why".
std::string sentence(const Error& error);

/// Checks blocks of one shard. One thread.
class BlockCheck {
  public:
    BlockCheck(const Manifest& manifest, std::size_t shard, std::filesystem::path path)
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
    std::filesystem::path path_;
    Decoder decoder_;
    std::vector<std::byte> decoded_;
};

}  // namespace lockstep
