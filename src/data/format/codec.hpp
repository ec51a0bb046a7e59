// SPDX-License-Identifier: Apache-2.0
// Compresses and expands blocks, in the payload formats of HDF5's registered filters.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// The LZ4 filter's payload (https://github.com/HDFGroup/hdf5_plugins, LZ4): total size as 8 bytes,
/// block size as 4, then each block's stored size as 4 and its data; all sizes big-endian. A block
/// whose stored size is its own size is not compressed.
inline constexpr std::size_t lz4_header = 12, lz4_block_header = 4;

/// The libraries' view of bytes.
inline const char* chars(std::span<const std::byte> bytes) {
    return reinterpret_cast<const char*>(bytes.data());
}
inline char* chars(std::span<std::byte> bytes) {
    return reinterpret_cast<char*>(bytes.data());
}

/// Compresses blocks with one codec. Move-only; one thread.
class Encoder {
  public:
    /// `level` 0 means the codec's usual one. Errors: E102 for a level that the codec has not.
    Encoder(Codec codec, int level);
    ~Encoder();
    Encoder(Encoder&&) noexcept;

    Codec codec() const { return codec_; }
    int level() const { return level_; }

    /// What to store for `raw`, valid until the next call; nothing if it would not get smaller.
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

    /// Fills `raw` exactly; false if `stored` is anything but a whole block of that size.
    [[nodiscard]] bool decode(Codec codec,
                              std::span<const std::byte> stored,
                              std::span<std::byte> raw);

    /// The same for a chunk that went through `chain`; checksums in it are compared. Keeps room for
    /// what one filter leaves to the next: buffer_bytes().
    [[nodiscard]] bool decode(const FilterChain& chain,
                              std::span<const std::byte> stored,
                              std::span<std::byte> raw);

    /// Most bytes that a decoder keeps after such chunks of at most `stored` and `raw` bytes.
    static std::uint64_t buffer_bytes(const FilterChain& chain,
                                      std::uint64_t stored,
                                      std::uint64_t raw);

  private:
    bool undo(const Filter& filter, std::span<const std::byte> stored, std::span<std::byte> raw);

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lockstep
