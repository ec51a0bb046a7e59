// SPDX-License-Identifier: Apache-2.0

#include "codec.hpp"

#include "lockstep/core/error.hpp"

#include "widening.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <libdeflate.h>
#include <lz4.h>
#include <lz4hc.h>
#include <zstd.h>

namespace lockstep {
namespace {

constexpr std::size_t lz4_block_limit = std::size_t{1} << 30;

void put_big_endian(std::byte* out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
}

struct Levels {
    int lowest, usual, highest;
};
Levels levels_of(Codec codec) {
    // Written once, read in every epoch: images in level 1 take 2 to 3 % more bytes than in level 6
    // and expand 12 to 25 % faster (docs/benchmarks.md).
    if (codec == Codec::deflate) return {1, 1, 9};
    if (codec == Codec::lz4) return {1, LZ4HC_CLEVEL_DEFAULT, LZ4HC_CLEVEL_MAX};
    if (codec == Codec::zstd) return {1, ZSTD_CLEVEL_DEFAULT, 19};
    return {0, 0, 0};
}

int checked_level(Codec codec, int level) {
    const Levels levels = levels_of(codec);
    if (level == 0) return levels.usual;
    check(level >= levels.lowest && level <= levels.highest,
          "E102",
          fmt::format("compression level {} for {}", level, codec_name(codec)),
          codec == Codec::none
              ? "data that is not compressed has no level"
              : fmt::format("it has levels {} to {}", levels.lowest, levels.highest));
    return level;
}

std::uint64_t take_big_endian(std::span<const std::byte>& in, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i)
        value = value << 8 | std::to_integer<std::uint64_t>(in[i]);
    in = in.subspan(bytes);
    return value;
}

bool decode_lz4_block(std::span<const std::byte> stored, std::span<std::byte> raw) {
    if (stored.size() == raw.size()) {
        std::ranges::copy(stored, raw.begin());
        return true;
    }
    if (stored.size() > LZ4_MAX_INPUT_SIZE || raw.size() > LZ4_MAX_INPUT_SIZE) return false;
    const int size = static_cast<int>(raw.size());
    return LZ4_decompress_safe(chars(stored), chars(raw), static_cast<int>(stored.size()), size) ==
           size;
}

bool decode_lz4(std::span<const std::byte> stored, std::span<std::byte> raw) {
    if (stored.size() < lz4_header || take_big_endian(stored, 8) != raw.size()) return false;
    const std::size_t block = take_big_endian(stored, 4);
    if (block == 0) return false;
    while (!raw.empty()) {
        const std::size_t size = std::min(block, raw.size());
        if (stored.size() < lz4_block_header) return false;
        const std::size_t stored_size = take_big_endian(stored, lz4_block_header);
        if (stored.size() < stored_size) return false;
        if (!decode_lz4_block(stored.first(stored_size), raw.first(size))) return false;
        stored = stored.subspan(stored_size);
        raw = raw.subspan(size);
    }
    return stored.empty();
}

bool makes_new_bytes(const Filter& filter) {
    return filter.kind != FilterKind::fletcher32;
}

// What a filter got when the chunk was written, as far as it is known: narrower elements, which
// checksums before it made longer.
std::size_t bytes_before(std::span<const Filter> earlier, std::size_t raw) {
    if (!earlier.empty() && earlier[0].kind == FilterKind::widening)
        raw = Widening(earlier[0].element).stored_bytes_of(raw);
    if (!earlier.empty() && earlier[0].kind == FilterKind::unpacking)
        raw = Unpacking::of(earlier[0])->stored_bytes_of(raw);  // filter_fault() found it sound
    const auto sums = std::ranges::count(earlier, FilterKind::fletcher32, &Filter::kind);
    return raw + 4 * static_cast<std::size_t>(sums);
}

bool copy_whole(std::span<const std::byte> stored, std::span<std::byte> raw) {
    if (stored.size() != raw.size()) return false;
    if (stored.data() != raw.data()) std::ranges::copy(stored, raw.begin());
    return true;
}

}  // namespace

struct Encoder::State {
    std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> deflate{
        nullptr, libdeflate_free_compressor};
    std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> zstd{nullptr, ZSTD_freeCCtx};
};

Encoder::Encoder(Codec codec, int level)
    : codec_(codec), level_(checked_level(codec, level)), state_(std::make_unique<State>()) {
    if (codec == Codec::deflate) state_->deflate.reset(libdeflate_alloc_compressor(level_));
    if (codec == Codec::zstd) state_->zstd.reset(ZSTD_createCCtx());
}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

std::optional<std::span<const std::byte>> Encoder::encode(std::span<const std::byte> raw) {
    // One byte less than the raw size: what does not fit is not worth compressing.
    if (codec_ == Codec::none || raw.size() < 2 || raw.size() > lz4_block_limit) return {};
    out_.resize(raw.size() - 1);
    std::size_t size = 0;
    if (codec_ == Codec::deflate)
        size = libdeflate_zlib_compress(
            state_->deflate.get(), raw.data(), raw.size(), out_.data(), out_.size());
    if (codec_ == Codec::zstd) {
        size = ZSTD_compressCCtx(
            state_->zstd.get(), out_.data(), out_.size(), raw.data(), raw.size(), level_);
        if (ZSTD_isError(size)) size = 0;
    }
    if (codec_ == Codec::lz4 && out_.size() > lz4_header + lz4_block_header) {
        const std::span<std::byte> body = std::span(out_).subspan(lz4_header + lz4_block_header);
        const int stored = LZ4_compress_HC(chars(raw),
                                           chars(body),
                                           static_cast<int>(raw.size()),
                                           static_cast<int>(body.size()),
                                           level_);
        put_big_endian(out_.data(), raw.size(), 8);
        put_big_endian(out_.data() + 8, raw.size(), 4);
        put_big_endian(out_.data() + 12, static_cast<std::uint64_t>(stored), 4);
        if (stored > 0) size = lz4_header + lz4_block_header + static_cast<std::size_t>(stored);
    }
    if (size == 0) return {};
    return std::span(out_).first(size);
}

struct Decoder::State {
    std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> deflate{
        libdeflate_alloc_decompressor(), libdeflate_free_decompressor};
    std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd{ZSTD_createDCtx(), ZSTD_freeDCtx};
    std::array<std::vector<std::byte>, 2> between;  // of what one filter left to the next
};

Decoder::Decoder() : state_(std::make_unique<State>()) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;

bool Decoder::decode(Codec codec, std::span<const std::byte> stored, std::span<std::byte> raw) {
    if (codec == Codec::none) return copy_whole(stored, raw);
    if (codec == Codec::filters) return false;                   // which ones is not said
    return undo({static_cast<FilterKind>(codec)}, stored, raw);  // they have the same numbers
}

bool Decoder::undo(const Filter& filter,
                   std::span<const std::byte> stored,
                   std::span<std::byte> raw) {
    switch (filter.kind) {
        case FilterKind::deflate:
            // Without a place for the size, libdeflate insists on exactly raw.size() bytes.
            return libdeflate_zlib_decompress(state_->deflate.get(),
                                              stored.data(),
                                              stored.size(),
                                              raw.data(),
                                              raw.size(),
                                              nullptr) == LIBDEFLATE_SUCCESS;
        case FilterKind::lz4:
            return decode_lz4(stored, raw);
        case FilterKind::zstd:
            return ZSTD_decompressDCtx(
                       state_->zstd.get(), raw.data(), raw.size(), stored.data(), stored.size()) ==
                   raw.size();
        case FilterKind::lzf:
            return decode_lzf(stored, raw);
        case FilterKind::blosc:
            return decode_blosc(stored, raw);
        case FilterKind::shuffle:
            if (stored.size() != raw.size() || filter.element == 0) return false;
            unshuffle(stored, filter.element, raw);
            return true;
        case FilterKind::widening:
            return Widening(filter.element).undo(stored, raw);
        case FilterKind::unpacking: {
            const auto unpacking = Unpacking::of(filter);
            return unpacking && unpacking->undo(stored, raw);
        }
        case FilterKind::fletcher32:
            break;
    }
    return false;
}

bool Decoder::decode(const FilterChain& chain,
                     std::span<const std::byte> stored,
                     std::span<std::byte> raw) {
    const std::span filters(chain);
    std::size_t made = 0;  // results so far: the next goes where the last one is not
    for (std::size_t i = filters.size(); i-- > 0;) {
        const Filter& filter = filters[i];
        if (!makes_new_bytes(filter)) {
            stored = checked_fletcher32(stored);
            if (stored.empty()) return false;
            continue;
        }
        const auto earlier = filters.first(i);
        const std::size_t bytes =
            filter.kind == FilterKind::shuffle ? stored.size() : bytes_before(earlier, raw.size());
        std::vector<std::byte>& between = state_->between[made++ % 2];
        const bool is_last = bytes == raw.size() && std::ranges::none_of(earlier, makes_new_bytes);
        if (!is_last && between.size() < bytes) between.resize(bytes);
        const std::span<std::byte> out = is_last ? raw : std::span(between).first(bytes);
        if (!undo(filter, stored, out)) return false;
        stored = out;
    }
    return copy_whole(stored, raw);
}

std::uint64_t Decoder::buffer_bytes(const FilterChain& chain,
                                    std::uint64_t stored,
                                    std::uint64_t raw) {
    if (chain.size() < 2) return 0;
    return 2 * std::max({stored, raw + 4 * chain.size(), bytes_before(chain, raw)});
}

}  // namespace lockstep
