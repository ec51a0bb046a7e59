// SPDX-License-Identifier: Apache-2.0
// The safetensors container (https://github.com/huggingface/safetensors#format), fp32 only.
#pragma once

#include "lockstep/core/hash.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A named run of fp32 values to be written, or one found in a file.
struct SafetensorsEntry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::span<const float> values;  ///< borrowed; only when writing
    std::uint64_t offset = 0;       ///< of the first byte in the file; filled in
    Hash128 hash;                   ///< of the bytes; filled in when writing
};

/// Writes `entries` in order to a new file and flushes it to disk. Errors: E401, E402, E405.
void write_safetensors(const std::filesystem::path& path, std::span<SafetensorsEntry> entries);

/// Reads and checks the header: bounded, no holes, no overlap, sizes that agree with the shapes.
/// Errors: E309.
std::vector<SafetensorsEntry> read_safetensors_header(const std::filesystem::path& path);

}  // namespace lockstep
