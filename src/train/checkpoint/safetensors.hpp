// SPDX-License-Identifier: Apache-2.0
// The safetensors container (https://github.com/huggingface/safetensors#format), fp32 only.
#pragma once

#include "lockstep/core/hash.hpp"
#include "lockstep/core/json.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A named run of fp32 values.
struct SafetensorsEntry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::span<const float> values;  ///< borrowed; needed for writing only
    std::uint64_t offset = 0;       ///< of the first byte in the file; filled in by writing
    Hash128 hash;                   ///< of the bytes; filled in by writing
};

/// The first bytes of a file whose header is `header`: its length, the text, spaces up to a
/// multiple of 64 bytes.
std::string framed_header(const Json& header);

/// The first bytes of a file with `entries` in this order: length and header, a multiple of 64.
std::string safetensors_header(std::span<const SafetensorsEntry> entries);

/// Writes `entries` in order to a new file and flushes it to disk; `wrote` hears of bytes of values
/// every now and then, how many in all. Errors: E401, E402, E405.
void write_safetensors(const std::filesystem::path& path,
                       std::span<SafetensorsEntry> entries,
                       const std::function<void(std::uint64_t)>& wrote = {});

}  // namespace lockstep
