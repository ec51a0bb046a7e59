// SPDX-License-Identifier: Apache-2.0
// Compresses and expands blocks, in the payload formats of HDF5's registered filters, and reverses
// the filters that packed shards do not use: shuffle, fletcher32, lzf, blosc.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// Sizes of the LZ4 filter's headers (https://github.com/HDFGroup/hdf5_plugins, LZ4). The payload
/// is the total size as 8 bytes, the block size as 4, then each block's stored size as 4 and its
/// data; all sizes are big-endian. A block whose stored size is its own size is not compressed.
inline constexpr std::size_t lz4_header = 12, lz4_block_header = 4;

/// Returns bytes in the type of the libraries.
inline const char* chars(std::span<const std::byte> bytes) {
    return reinterpret_cast<const char*>(bytes.data());
}
inline char* chars(std::span<std::byte> bytes) {
    return reinterpret_cast<char*>(bytes.data());
}

/// Compresses blocks with one codec. Move-only; one thread.
class Encoder {
  public:
    /// `level` 0 means the codec's default. Errors: E102 for a level that the codec does not have.
    Encoder(Codec codec, int level);
    ~Encoder();
    Encoder(Encoder&&) noexcept;

    Codec codec() const { return codec_; }
    int level() const { return level_; }

    /// Returns the compressed `raw`, valid until the next call; nothing if it is no smaller.
    std::optional<std::span<const std::byte>> encode(std::span<const std::byte> raw);

  private:
    struct State;
    Codec codec_;
    int level_;
    std::unique_ptr<State> state_;
    std::vector<std::byte> out_;
};

/// Expands blocks of any codec. Move-only; one thread.
class Decoder {
  public:
    Decoder();
    ~Decoder();
    Decoder(Decoder&&) noexcept;

    /// Fills `raw` exactly. Returns false if `stored` is anything but a whole block of that size.
    [[nodiscard]] bool decode(Codec codec,
                              std::span<const std::byte> stored,
                              std::span<std::byte> raw);

    /// Does the same for a chunk that went through `chain`, and compares its checksums. Keeps
    /// buffers between filters: buffer_bytes().
    [[nodiscard]] bool decode(const FilterChain& chain,
                              std::span<const std::byte> stored,
                              std::span<std::byte> raw);

    /// Returns the most bytes that a decoder keeps after such chunks of at most `stored` and `raw`
    /// bytes.
    static std::uint64_t buffer_bytes(const FilterChain& chain,
                                      std::uint64_t stored,
                                      std::uint64_t raw);

  private:
    bool undo(const Filter& filter, std::span<const std::byte> stored, std::span<std::byte> raw);

    struct State;
    std::unique_ptr<State> state_;
};

/// Computes HDF5's fletcher32 (H5_checksum_fletcher32 of H5checksum.c) over 16-bit words, high byte
/// first; an odd last byte counts as a high one.
std::uint32_t fletcher32(std::span<const std::byte> bytes);

/// Returns `stored` without the checksum at its end; an empty span if it is wrong or missing.
std::span<const std::byte> checked_fletcher32(std::span<const std::byte> stored);

/// Reverses HDF5's shuffle filter for elements of `element_bytes`; a rest at the end stays
/// unchanged. The spans have one size.
void unshuffle(std::span<const std::byte> stored,
               std::uint32_t element_bytes,
               std::span<std::byte> raw);

/// Returns the expanded size of an LZF stream by its lengths alone; 0 if cut short.
std::uint64_t lzf_bytes(std::span<const std::byte> stored);

/// Expands an LZF stream into exactly raw.size() bytes. Returns false if it is anything else.
bool decode_lzf(std::span<const std::byte> stored, std::span<std::byte> raw);

/// Returns true if this build has c-blosc (LOCKSTEP_WITH_BLOSC).
bool reads_blosc();

/// Expands a Blosc 1 buffer into exactly raw.size() bytes. Returns false if its header is not that
/// of a whole buffer of these sizes, or if blosc refuses it.
bool decode_blosc(std::span<const std::byte> stored, std::span<std::byte> raw);

/// No chunk that went through filters has more bytes: HDF5's own limit (H5Pset_chunk).
inline constexpr std::uint64_t most_chunk_bytes = 0xffffffff;

/// Most bytes that a chunk of `stored` bytes expands to, by the formats of its filters. What
/// announces more is damaged or made to do harm; finding that out takes no memory.
std::uint64_t most_expanded(const FilterChain& chain, std::uint64_t stored);

}  // namespace lockstep
