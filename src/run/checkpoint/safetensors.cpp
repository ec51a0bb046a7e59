// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/safetensors.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep {
namespace {

// What is hashed is still in the cache when it is written.
constexpr std::size_t cached_bytes = 256u << 10, piece_bytes = std::size_t{1} << 20;

std::uint64_t bytes_of_shape(const std::vector<std::int64_t>& shape) {
    std::uint64_t bytes = sizeof(float);
    for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
    return bytes;
}

}  // namespace

std::string framed_header(const Json& header) {
    std::string text = header.dump();
    text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // data begins on a 64-byte line
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
    return length + text;
}

std::string safetensors_header(std::span<const SafetensorsEntry> entries) {
    Json header;
    header["__metadata__"] = {{"format", "lockstep"}};
    std::uint64_t at = 0;
    for (const SafetensorsEntry& entry : entries) {
        const std::uint64_t end = at + bytes_of_shape(entry.shape);
        header[entry.name] = {
            {"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {at, end}}};
        at = end;
    }
    return framed_header(header);
}

void write_safetensors(const fs::path& path,
                       std::span<SafetensorsEntry> entries,
                       const std::function<void(std::uint64_t)>& wrote) {
    const UniqueFd file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) throw system_error("create", path, errno);
    const std::string header = safetensors_header(entries);
    write_all(file.value(), bytes_of(header), path);
    std::uint64_t at = header.size();
    for (SafetensorsEntry& entry : entries) {
        const auto bytes = std::as_bytes(entry.values);
        expect(bytes.size() == bytes_of_shape(entry.shape), "values fill their shape");
        entry.offset = at;
        Hasher128 hasher;
        for (std::size_t begin = 0; begin < bytes.size(); begin += cached_bytes) {
            const auto part = bytes.subspan(begin, std::min(cached_bytes, bytes.size() - begin));
            hasher.add(part);
            write_all(file.value(), part, path);
            at += part.size();
            if (wrote) wrote(at - header.size());
        }
        entry.hash = hasher.value();
    }
    if (::fsync(file.value()) != 0) throw system_error("flush", path, errno);
}

std::string file_digest(const fs::path& path) {
    const UniqueFd fd = open_for_reading(path);
    Hasher128 hasher;
    std::vector<std::byte> piece(piece_bytes);
    for (std::uint64_t at = 0;;) {
        const std::size_t got = read_at(fd.value(), piece, at, path);
        hasher.add(std::span(piece).first(got));
        at += got;
        if (got < piece.size()) return hasher.value().hex();
    }
}

}  // namespace lockstep
