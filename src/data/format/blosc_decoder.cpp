// SPDX-License-Identifier: Apache-2.0
#include "codec.hpp"

#include <cstring>

#include <blosc.h>

namespace lockstep {
namespace {

// Header of a Blosc 1 buffer (https://github.com/Blosc/c-blosc, README_CHUNK_FORMAT.rst); its
// numbers are little-endian.
struct BloscHeader {
    std::uint8_t version, codec_version, flags, type_bytes;
    std::int32_t raw_bytes, block_bytes, stored_bytes;
};
static_assert(sizeof(BloscHeader) == BLOSC_MIN_HEADER_LENGTH);

bool is_sound(const BloscHeader& header, std::size_t stored, std::size_t raw) {
    const bool has_sizes = stored <= BLOSC_MAX_BUFFERSIZE && raw <= BLOSC_MAX_BUFFERSIZE &&
                           header.raw_bytes == static_cast<std::int64_t>(raw) &&
                           header.stored_bytes == static_cast<std::int64_t>(stored);
    if (!has_sizes || header.version != BLOSC_VERSION_FORMAT || header.type_bytes == 0)
        return false;
    if (header.block_bytes < 1 || header.block_bytes > header.raw_bytes) return false;
    if ((header.flags & BLOSC_MEMCPYED) != 0) return stored == raw + BLOSC_MIN_HEADER_LENGTH;
    const std::size_t blocks = (raw - 1) / static_cast<std::size_t>(header.block_bytes) + 1;
    return blocks <= (stored - BLOSC_MIN_HEADER_LENGTH) / sizeof(std::int32_t);
}

}  // namespace

bool reads_blosc() {
    return true;
}

bool decode_blosc(std::span<const std::byte> stored, std::span<std::byte> raw) {
    BloscHeader header{};
    if (stored.size() < sizeof header || raw.empty()) return false;
    std::memcpy(&header, stored.data(), sizeof header);
    std::size_t announced = 0;
    if (!is_sound(header, stored.size(), raw.size()) ||
        blosc_cbuffer_validate(stored.data(), stored.size(), &announced) != 0 ||
        announced != raw.size())
        return false;
    return blosc_decompress_ctx(stored.data(), raw.data(), raw.size(), 1) ==
           static_cast<int>(raw.size());
}

}  // namespace lockstep
