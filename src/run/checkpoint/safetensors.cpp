// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/safetensors.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/file_start.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t told_bytes = 32u << 20;

std::uint64_t bytes_of_shape(const std::vector<std::int64_t>& shape) {
    std::uint64_t bytes = sizeof(float);
    for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
    return bytes;
}

constexpr std::uint64_t longest_header = 100'000'000;  // limit of the format's own readers
constexpr std::uint64_t most_elements = std::uint64_t{1} << 48;
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

struct StoredType {
    std::string_view dtype;
    std::size_t bytes;
    StoredFloat type = StoredFloat::other;
};
constexpr std::array<StoredType, 14> stored_types{{{"F16", 2, StoredFloat::f16},
                                                   {"BF16", 2, StoredFloat::bf16},
                                                   {"F32", 4, StoredFloat::f32},
                                                   {"F64", 8, StoredFloat::f64},
                                                   {"I64", 8},
                                                   {"I32", 4},
                                                   {"I16", 2},
                                                   {"I8", 1},
                                                   {"U64", 8},
                                                   {"U32", 4},
                                                   {"U16", 2},
                                                   {"U8", 1},
                                                   {"F8_E4M3", 1},
                                                   {"BOOL", 1}}};

Error malformed(const fs::path& path,
                const std::string& why,
                const std::string& way =
                    "make or download it again, or check that it is the "
                    "file you mean") {
    return Error(
        "E309", fmt::format("'{}' is not a whole safetensors file", path.string()), why, way);
}

// Returns the error for a file with an invalid header, because it may be of another kind.
Error malformed_header(const UniqueFd& fd, const fs::path& path, const std::string& why) {
    std::array<char, file_start_bytes> buffer{};
    const std::size_t got = read_at(fd.value(), std::as_writable_bytes(std::span(buffer)), 0, path);
    const std::string_view start(buffer.data(), got);
    const FileKind kind = file_kind(start);
    if (kind == FileKind::unknown || kind == FileKind::text) return malformed(path, why);
    const std::string way = way_to_safetensors(start, path);
    return way.empty() ? malformed(path, file_start_text(start))
                       : malformed(path, file_start_text(start), way);
}

// sign, 5 bits of exponent, 10 of fraction.
float float_of_half(std::uint16_t half) {
    const int exponent = half >> 10 & 0x1f;
    const auto fraction = static_cast<float>(half & 0x3ff);
    const float sign = half >> 15 == 0 ? 1.0F : -1.0F;
    if (exponent == 0) return sign * std::ldexp(fraction, -24);
    if (exponent < 31) return sign * std::ldexp(1024.0F + fraction, exponent - 25);
    return fraction > 0 ? std::nanf("") : sign * HUGE_VALF;
}

float float_of_bfloat(std::uint16_t value) {
    return std::bit_cast<float>(std::uint32_t{value} << 16);
}

template <class Stored, class Convert>
void convert(std::span<const std::byte> stored, std::span<float> out, Convert&& to_float) {
    for (std::size_t i = 0; i < out.size(); ++i) {
        Stored value{};
        std::memcpy(&value, stored.data() + i * sizeof value, sizeof value);
        out[i] = to_float(value);
    }
}

std::uint64_t count_of(const std::vector<std::int64_t>& shape, const fs::path& path) {
    std::uint64_t count = 1;
    for (const std::int64_t extent : shape) {
        const auto size = static_cast<std::uint64_t>(extent);
        if (extent < 0 || (size > 0 && count > most_elements / size))
            throw malformed(path, "a shape in its header is impossible");
        count *= size;
    }
    return count;
}

StoredTensor tensor_of(const std::string& name, const Json& json, const fs::path& path) {
    StoredTensor tensor{.name = name};
    tensor.dtype = json_field<std::string>(json, "dtype", path.string());
    tensor.shape = json_field<std::vector<std::int64_t>>(json, "shape", path.string());
    const auto ends = json_field<std::vector<std::int64_t>>(json, "data_offsets", path.string());
    if (ends.size() != 2 || ends[0] < 0 || ends[1] < ends[0])
        throw malformed(path, fmt::format("the offsets of '{}' make no sense", printable(name)));
    tensor.offset = static_cast<std::uint64_t>(ends[0]);
    tensor.bytes = static_cast<std::uint64_t>(ends[1] - ends[0]);
    const auto found = std::ranges::find(stored_types, tensor.dtype, &StoredType::dtype);
    if (found == stored_types.end()) return tensor;
    tensor.type = found->type;
    if (tensor.bytes != count_of(tensor.shape, path) * found->bytes)
        throw malformed(path, fmt::format("'{}' does not fill its shape", printable(name)));
    return tensor;
}

std::string header_of(const UniqueFd& fd, std::uint64_t file_bytes, const fs::path& path) {
    std::array<unsigned char, 8> head{};
    if (read_at(fd.value(), std::as_writable_bytes(std::span(head)), 0, path) < head.size())
        throw malformed_header(fd, path, "it ends within its header");
    std::uint64_t length = 0;
    for (std::size_t i = head.size(); i-- > 0;) length = length << 8 | head[i];
    if (length > longest_header || length > file_bytes - head.size())
        throw malformed_header(fd,
                               path,
                               fmt::format("its header would have {} bytes; the file has {}",
                                           grouped(length),
                                           grouped(file_bytes)));
    std::string text(length, '\0');
    read_at(fd.value(), std::as_writable_bytes(std::span(text)), head.size(), path);
    return text;
}

Json parsed_header(const std::string& text, const fs::path& path) {
    std::optional<Json> header;
    try {
        header = parse_json(text, path.string());
    } catch (const Error& error) {
        throw malformed(path, "its header: " + error.why());
    }
    if (!header->is_object()) throw malformed(path, "its header is no object");
    return *std::move(header);
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
        entry.hash = hash128(bytes);
        for (std::size_t begin = 0; begin < bytes.size(); begin += told_bytes) {
            const auto part = bytes.subspan(begin, std::min(told_bytes, bytes.size() - begin));
            write_all(file.value(), part, path);
            at += part.size();
            if (wrote) wrote(at - header.size());
        }
    }
    if (::fsync(file.value()) != 0) throw system_error("flush", path, errno);
}

std::uint64_t StoredTensor::count() const {
    std::uint64_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::uint64_t>(extent);
    return count;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : path_(path) {
    check_is_weights_file(path);
    fd_ = open_for_reading(path);
    const std::uint64_t bytes = fs::file_size(path);
    const std::string text = header_of(fd_, bytes, path);
    const Json header = parsed_header(text, path);
    for (const auto& [name, json] : header.items())
        if (name != "__metadata__") tensors_.push_back(tensor_of(name, json, path));
    // An empty tensor comes before its neighbour at the same place.
    std::ranges::sort(tensors_, {}, [](const StoredTensor& tensor) {
        return std::pair(tensor.offset, tensor.bytes);
    });
    const std::uint64_t data = 8 + text.size();
    check_places(bytes - data);
    for (StoredTensor& tensor : tensors_) tensor.offset += data;
}

void SafetensorsFile::check_places(std::uint64_t data_bytes) {
    std::uint64_t at = 0;
    for (const StoredTensor& tensor : tensors_) {
        if (tensor.offset != at)
            throw malformed(
                path_,
                fmt::format("there is a hole or an overlap before '{}'", printable(tensor.name)));
        at += tensor.bytes;
    }
    if (at != data_bytes)
        throw malformed(
            path_,
            fmt::format("its tensors need {} bytes; it has {}", grouped(at), grouped(data_bytes)));
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<float> out) const {
    expect(out.size() == tensor.count(), "there is room for all elements");
    std::vector<std::byte> stored(tensor.bytes);
    if (read_at(fd_.value(), stored, tensor.offset, path_) < stored.size())
        throw malformed(path_, "it was cut short while it was read");
    switch (tensor.type) {
        case StoredFloat::f16:
            return convert<std::uint16_t>(stored, out, float_of_half);
        case StoredFloat::bf16:
            return convert<std::uint16_t>(stored, out, float_of_bfloat);
        case StoredFloat::f32:
            return convert<float>(stored, out, [](float value) { return value; });
        case StoredFloat::f64:
            return convert<double>(
                stored, out, [](double value) { return static_cast<float>(value); });
        case StoredFloat::other:
            expect(false, "only numbers that become floats are read");
    }
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
