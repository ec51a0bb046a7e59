// SPDX-License-Identifier: Apache-2.0
#pragma once
// The LZ4 filter's payload, which codec.cpp writes and decoder.cpp reads
// (https://github.com/HDFGroup/hdf5_plugins, LZ4): total size as 8 bytes, block size as 4, then
// each block's stored size as 4 and its data; all sizes big-endian. A block whose stored size is
// its own size is not compressed.
#include <cstddef>
#include <span>

namespace lockstep {

inline constexpr std::size_t lz4_header = 12, lz4_block_header = 4;

/// The libraries' view of bytes.
inline const char* chars(std::span<const std::byte> bytes) {
    return reinterpret_cast<const char*>(bytes.data());
}
inline char* chars(std::span<std::byte> bytes) {
    return reinterpret_cast<char*>(bytes.data());
}

}  // namespace lockstep
