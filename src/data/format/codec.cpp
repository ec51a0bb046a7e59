// SPDX-License-Identifier: Apache-2.0
#include "codec.hpp"

#include "lockstep/core/error.hpp"

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
    switch (codec) {
        case Codec::deflate:
            // Written once, read in every epoch: images in level 1 take 2 to 3 % more bytes than in
            // level 6 and expand 12 to 25 % faster (docs/benchmarks.md).
            return {1, 1, 9};
        case Codec::lz4:
            return {1, LZ4HC_CLEVEL_DEFAULT, LZ4HC_CLEVEL_MAX};
        case Codec::zstd:
            return {1, ZSTD_CLEVEL_DEFAULT, 19};
        case Codec::none:
        case Codec::filters:
            break;
    }
    return {0, 0, 0};
}

int checked_level(Codec codec, int level) {
    const Levels levels = levels_of(codec);
    if (level == 0) return levels.usual;
    check(level >= levels.lowest && level <= levels.highest, [&] {
        return Error("E102",
                     fmt::format("compression level {} for {}", level, codec_name(codec)),
                     codec == Codec::none
                         ? "data that is not compressed has no level"
                         : fmt::format("it has levels {} to {}", levels.lowest, levels.highest));
    });
    return level;
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

}  // namespace lockstep
