// SPDX-License-Identifier: Apache-2.0
#include "expansion.hpp"

#include "unpacking.hpp"
#include "widening.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// The most bytes to which one stored byte can expand: in deflate 258 bytes in two bits (RFC 1951),
// in LZ4 255 in a byte of a match's length (lz4_Block_format.md), in LZF 264 in three, in Zstandard
// a block of 128 KiB in the four bytes of a repeated one (RFC 8878), which is the highest of the
// codecs in Blosc 1.
std::uint64_t expansion(const Filter& filter) {
    switch (filter.kind) {
        case FilterKind::deflate:
            return 1032;
        case FilterKind::lz4:
            return 255;
        case FilterKind::lzf:
            return 88;
        case FilterKind::zstd:
        case FilterKind::blosc:
            return 32768;
        case FilterKind::widening: {
            const Widening widening(filter.element);
            return element_bytes(widening.type()) / widening.stored_bytes();
        }
        case FilterKind::unpacking:  // per byte; 8-byte numbers become shorter
        case FilterKind::shuffle:
        case FilterKind::fletcher32:
            break;
    }
    return 1;
}

}  // namespace

std::uint64_t most_expanded(const FilterChain& chain, std::uint64_t stored) {
    std::uint64_t bytes = std::min(stored, most_chunk_bytes);
    for (const Filter& filter : chain)
        bytes = std::min(bytes * expansion(filter), most_chunk_bytes);
    if (!chain.empty() && chain[0].kind == FilterKind::unpacking)
        bytes = std::min(bytes / Unpacking::of(chain[0])->stored_bytes() * sizeof(float),
                         most_chunk_bytes);
    return bytes;
}

}  // namespace lockstep
