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

/// A stream of zlib's whose input is `bytes`, less than 4 GiB.
z_stream stream_of(std::string_view bytes) {
    expect(bytes.size() <= std::numeric_limits<uInt>::max(), "traces are small");
    z_stream stream{};
    stream.next_in =
        reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib knows no const
    stream.avail_in = static_cast<uInt>(bytes.size());
    return stream;
}

}  // namespace

std::string gzip(std::string_view text) {
    z_stream stream = stream_of(text);
    if (::deflateInit2(&stream, quick, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        throw std::bad_alloc();
    std::string packed(::deflateBound(&stream, stream.avail_in), '\0');
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    const int code = ::deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    ::deflateEnd(&stream);
    expect(code == Z_STREAM_END, "zlib packs any text");
    return packed;
}

std::optional<std::string> gunzip(std::string_view packed, std::size_t limit_bytes) {
    z_stream stream = stream_of(packed);
    if (::inflateInit2(&stream, gzip_window) != Z_OK) throw std::bad_alloc();
    std::string text;
    std::array<char, 64 << 10> room;
    int code = Z_OK;
    while (code == Z_OK && text.size() <= limit_bytes) {
        stream.next_out = reinterpret_cast<Bytef*>(room.data());
        stream.avail_out = static_cast<uInt>(room.size());
        code = ::inflate(&stream, Z_NO_FLUSH);
        text.append(room.data(), room.size() - stream.avail_out);
    }
    ::inflateEnd(&stream);
    if (code != Z_STREAM_END || text.size() > limit_bytes) return {};
    return text;
}

}  // namespace lockstep
