// SPDX-License-Identifier: Apache-2.0
#include "trace/gzip.hpp"

#include "lockstep/core/error.hpp"

#include <array>
#include <limits>
#include <new>

#include <zlib.h>

namespace lockstep {
namespace {

constexpr int gzip_window = 15 + 16;  // zlib's way of asking for gzip's header
constexpr int quick = 1;              // a rank waits for it

/// Hands `text` to `stream` in pieces that its counter holds, and what comes out to `take`, which
/// says whether to go on. The last code of `step`.
template <class Step, class Take>
int pump(z_stream& stream, std::string_view text, Step&& step, Take&& take) {
    std::array<char, 64 << 10> room;
    int code = Z_OK;
    do {
        if (stream.avail_in == 0) {
            const std::string_view piece = text.substr(0, std::numeric_limits<uInt>::max());
            stream.next_in =
                reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));  // zlib knows no const
            stream.avail_in = static_cast<uInt>(piece.size());
            text.remove_prefix(piece.size());
        }
        stream.next_out = reinterpret_cast<Bytef*>(room.data());
        stream.avail_out = static_cast<uInt>(room.size());
        code = step(text.empty() ? Z_FINISH : Z_NO_FLUSH);
        if (!take(std::string_view(room.data(), room.size() - stream.avail_out)))
            return Z_BUF_ERROR;
    } while (code == Z_OK || (code == Z_BUF_ERROR && stream.avail_out == 0));
    return code;
}

}  // namespace

std::string gzip(std::string_view text) {
    z_stream stream{};
    if (::deflateInit2(&stream, quick, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        throw std::bad_alloc();
    std::string packed;
    const int code = pump(
        stream,
        text,
        [&](int flush) { return ::deflate(&stream, flush); },
        [&](std::string_view piece) {
            packed += piece;
            return true;
        });
    ::deflateEnd(&stream);
    expect(code == Z_STREAM_END, "zlib packs any text");
    return packed;
}

std::optional<std::string> gunzip(std::string_view packed, std::size_t limit_bytes) {
    z_stream stream{};
    if (::inflateInit2(&stream, gzip_window) != Z_OK) throw std::bad_alloc();
    std::string text;
    const int code = pump(
        stream,
        packed,
        [&](int) { return ::inflate(&stream, Z_NO_FLUSH); },
        [&](std::string_view piece) {
            text += piece;
            return text.size() <= limit_bytes;
        });
    ::inflateEnd(&stream);
    if (code != Z_STREAM_END) return {};
    return text;
}

}  // namespace lockstep
