// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::uint64_t largest_header = 64u << 20;

std::string header_of(std::span<const SafetensorsEntry> entries) {
    Json header;
    header["__metadata__"] = {{"format", "lockstep"}};
    std::uint64_t at = 0;
    for (const SafetensorsEntry& entry : entries) {
        const std::uint64_t end = at + entry.values.size_bytes();
        header[entry.name] = {
            {"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {at, end}}};
        at = end;
    }
    std::string text = header.dump();
    text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // data begins on a 64-byte line
    return text;
}

Error malformed(const fs::path& path, const std::string& why) {
    return Error("E309",
                 fmt::format("'{}' is no sound safetensors file", path.string()),
                 why,
                 "use another checkpoint; 'lockstep ckpt verify RUN' lists whole ones");
}

std::uint64_t element_count(const std::vector<std::int64_t>& shape, const fs::path& path) {
    std::uint64_t count = 1;
    for (const std::int64_t extent : shape) {
        const bool fits =
            extent >= 0 &&
            (extent == 0 || count <= (std::uint64_t{1} << 60) / static_cast<std::uint64_t>(extent));
        if (!fits) throw malformed(path, "a shape is negative or overflows");
        count *= static_cast<std::uint64_t>(extent);
    }
    return count;
}

SafetensorsEntry parse_entry(const std::string& name,
                             const Json& fields,
                             std::uint64_t data_begin,
                             const fs::path& path) {
    const auto offsets =
        json_field<std::vector<std::int64_t>>(fields, "data_offsets", path.string());
    SafetensorsEntry entry;
    entry.name = name;
    entry.shape = json_field<std::vector<std::int64_t>>(fields, "shape", path.string());
    if (json_field<std::string>(fields, "dtype", path.string()) != "F32" || offsets.size() != 2)
        throw malformed(path, fmt::format("'{}' is not fp32 with two offsets", name));
    const auto bytes = static_cast<std::int64_t>(element_count(entry.shape, path) * sizeof(float));
    if (offsets[0] < 0 || offsets[1] - offsets[0] != bytes)
        throw malformed(path, fmt::format("'{}' has shape and offsets that differ", name));
    entry.offset = data_begin + static_cast<std::uint64_t>(offsets[0]);
    return entry;
}

void check_no_holes(std::vector<SafetensorsEntry>& entries,
                    std::uint64_t at,
                    std::uint64_t file_bytes,
                    const fs::path& path) {
    std::ranges::sort(entries, {}, &SafetensorsEntry::offset);
    for (const SafetensorsEntry& entry : entries) {
        if (entry.offset != at)
            throw malformed(path, "a hole or an overlap before '" + entry.name + "'");
        at += element_count(entry.shape, path) * sizeof(float);
    }
    if (at != file_bytes)
        throw malformed(path, fmt::format("{} of {} bytes are there", file_bytes, at));
}

}  // namespace

void write_safetensors(const fs::path& path, std::span<SafetensorsEntry> entries) {
    const UniqueFd file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) throw system_error("create", path, errno);
    const std::string header = header_of(entries);
    const std::uint64_t length = header.size();
    write_all(file.value(), std::as_bytes(std::span(&length, 1)), path);
    write_all(file.value(), bytes_of(header), path);
    std::uint64_t at = sizeof(length) + length;
    for (SafetensorsEntry& entry : entries) {
        const auto bytes = std::as_bytes(entry.values);
        entry.offset = at;
        entry.hash = hash128(bytes);
        write_all(file.value(), bytes, path);
        at += bytes.size();
    }
    if (::fsync(file.value()) != 0) throw system_error("flush", path, errno);
}

std::vector<SafetensorsEntry> read_safetensors_header(const fs::path& path) {
    const UniqueFd file = open_for_reading(path);
    const std::uint64_t file_bytes = fs::file_size(path);
    std::uint64_t length = 0;
    const auto got = read_at(file.value(), std::as_writable_bytes(std::span(&length, 1)), 0, path);
    if (got != sizeof(length) || length > largest_header || length + sizeof(length) > file_bytes)
        throw malformed(path, "its header is longer than the file");
    std::string text(length, '\0');
    read_at(file.value(), std::as_writable_bytes(std::span(text)), sizeof(length), path);
    std::vector<SafetensorsEntry> entries;
    const std::uint64_t data_begin = sizeof(length) + length;
    const Json header = parse_json(text, path.string(), 8);
    for (const auto& [name, fields] : header.items())
        if (name != "__metadata__") entries.push_back(parse_entry(name, fields, data_begin, path));
    check_no_holes(entries, data_begin, file_bytes, path);
    return entries;
}

}  // namespace lockstep
