// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/manifest.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include "manifest_fields.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::string_view seal_start = ",\n  \"digest\": \"";
constexpr std::string_view seal_end = "\"\n}\n";

struct CodecName {
    Codec codec;
    std::string_view name;
};
constexpr std::array<CodecName, 4> codecs{{{Codec::none, "none"},
                                           {Codec::deflate, "deflate"},
                                           {Codec::lz4, "lz4"},
                                           {Codec::zstd, "zstd"}}};

void check_seal(std::string_view text, const std::string& digest, const std::string& origin) {
    const auto cut = text.rfind(seal_start);
    const bool is_sealed =
        cut != std::string_view::npos && sealed(std::string(text.substr(0, cut))) == text;
    check(is_sealed, [&] {
        return Error("E223",
                     fmt::format("'{}' was changed after it was written", origin),
                     fmt::format("its digest says {}", printable_digest(digest)),
                     "restore it from its source; do not edit it");
    });
}

}  // namespace

std::string_view element_name(ElementType type) {
    constexpr std::array<std::string_view, 5> names{"u8", "i32", "i64", "f32", "f64"};
    return names.at(static_cast<std::size_t>(type));
}

std::size_t element_bytes(ElementType type) {
    constexpr std::array<std::size_t, 5> sizes{1, 4, 8, 4, 8};
    return sizes.at(static_cast<std::size_t>(type));
}

std::string_view codec_name(Codec codec) {
    if (codec == Codec::filters) return "filters";
    return std::ranges::find(codecs, codec, &CodecName::codec)->name;
}

Codec parse_codec(std::string_view name) {
    const auto found = std::ranges::find(codecs, name, &CodecName::name);
    check(found != codecs.end(), [&] {
        return Error("E103",
                     fmt::format("'{}' is no codec", name),
                     "the codecs are none, deflate, lz4 and zstd");
    });
    return found->codec;
}

std::size_t Field::bytes_per_sample() const {
    return std::accumulate(
        shape.begin(), shape.end(), element_bytes(type), [](std::size_t bytes, std::int64_t size) {
            return bytes * static_cast<std::size_t>(size);
        });
}

std::uint64_t Manifest::bytes_per_sample() const {
    std::uint64_t bytes = 0;
    for (const Field& field : fields) bytes += field.bytes_per_sample();
    return bytes;
}

std::string sealed(std::string text) {
    const std::string digest = hash128(std::string_view(text)).hex();
    return text.append(seal_start).append(digest).append(seal_end);
}

std::string manifest_text(const Manifest& manifest) {
    std::string text = manifest_json(manifest).dump(2);
    text.resize(text.rfind("\n}"));
    return sealed(std::move(text));
}

Manifest parse_manifest(std::string_view text, const std::string& origin, ManifestKind kind) {
    const Json json = parse_json(text, origin);
    const auto digest = json_field<std::string>(json, "digest", origin);
    check_seal(text, digest, origin);
    Manifest manifest = manifest_from_json(json, origin, kind);
    manifest.digest = digest;
    return manifest;
}

std::string read_manifest_text(const std::filesystem::path& folder) {
    const fs::path path = folder / manifest_name;
    std::error_code failed;
    const fs::file_status status = fs::status(folder, failed);
    if (status.type() == fs::file_type::not_found) throw system_error("open", folder, ENOENT);
    if (failed) throw system_error("open", folder, failed.value());
    const bool is_missing = fs::is_directory(status)
                                ? fs::status(path, failed).type() == fs::file_type::not_found
                                : true;
    check(!is_missing, [&] {
        return Error("E216",
                     fmt::format("'{}' is no data set", folder.string()),
                     fs::is_directory(status) ? fmt::format("it has no {}", manifest_name)
                                              : "it is a file, not a folder",
                     "make one with 'lockstep data pack', or check the path");
    });
    return read_file(path);
}

}  // namespace lockstep
