// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_manifest.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error not_covering(const std::string& origin, const std::string& tensor) {
    return Error("E309",
                 fmt::format("'{}' does not hold tensor '{}' exactly once", origin, tensor),
                 "its pieces leave a hole or overlap",
                 "use another checkpoint");
}

void check_coverage(const CheckpointTable& table, const std::string& origin) {
    std::vector<std::uint64_t> reached(table.tensors.size(), 0);
    std::vector<const StoredPiece*> ordered;
    for (const StoredPiece& piece : table.pieces) ordered.push_back(&piece);
    std::ranges::sort(ordered, {}, &StoredPiece::start);
    for (const StoredPiece* piece : ordered) {
        if (piece->tensor >= reached.size() || piece->start != reached[piece->tensor])
            throw not_covering(origin, fmt::format("#{}", piece->tensor));
        reached[piece->tensor] += piece->count;
    }
    for (std::size_t i = 0; i < reached.size(); ++i)
        if (reached[i] != table.tensors[i].count())
            throw not_covering(origin, table.tensors[i].name);
}

}  // namespace

std::uint64_t TensorMeta::count() const {
    return std::accumulate(
        shape.begin(), shape.end(), std::uint64_t{1}, [](auto product, auto extent) {
            return product * static_cast<std::uint64_t>(extent);
        });
}

Json to_json(const StoredPiece& piece) {
    return {{"tensor", piece.tensor},
            {"start", piece.start},
            {"count", piece.count},
            {"file", piece.file},
            {"offset", piece.offset},
            {"xxh3_128", piece.hash}};
}

StoredPiece piece_from_json(const Json& json, const std::string& origin) {
    return {.tensor = json_field<std::uint64_t>(json, "tensor", origin),
            .start = json_field<std::uint64_t>(json, "start", origin),
            .count = json_field<std::uint64_t>(json, "count", origin),
            .file = json_field<std::string>(json, "file", origin),
            .offset = json_field<std::uint64_t>(json, "offset", origin),
            .hash = json_field<std::string>(json, "xxh3_128", origin)};
}

std::string checkpoint_manifest_text(const Json& state,
                                     std::span<const TensorMeta> tensors,
                                     std::span<const StoredPiece> pieces) {
    Json manifest;
    manifest["format"] = checkpoint_format;
    manifest["state"] = state;
    for (const TensorMeta& tensor : tensors)
        manifest["tensors"].push_back(
            {{"name", tensor.name}, {"dtype", "F32"}, {"shape", tensor.shape}});
    for (const StoredPiece& piece : pieces) manifest["pieces"].push_back(to_json(piece));
    manifest["digest"] = hash128(manifest.dump()).hex();
    return manifest.dump(1) + "\n";
}

Json parse_checkpoint_manifest(const std::string& text, const std::string& origin) {
    Json manifest = parse_json(text, origin);
    const auto digest = json_field<std::string>(manifest, "digest", origin);
    const auto format = json_field<std::int64_t>(manifest, "format", origin);
    check(format == checkpoint_format, [&] {
        return Error("E305",
                     fmt::format("'{}' has checkpoint format {}", origin, format),
                     fmt::format("this version reads format {}", checkpoint_format),
                     "use the version of Lockstep that wrote it");
    });
    manifest.erase("digest");
    check(hash128(manifest.dump()).hex() == digest, [&] {
        return Error("E310",
                     fmt::format("'{}' is damaged", origin),
                     "its own digest does not match its content",
                     "use another checkpoint");
    });
    return manifest;
}

CheckpointTable table_of(const Json& manifest, const std::string& origin) {
    CheckpointTable table;
    for (const Json& tensor : json_field<Json>(manifest, "tensors", origin))
        table.tensors.push_back({json_field<std::string>(tensor, "name", origin),
                                 json_field<std::vector<std::int64_t>>(tensor, "shape", origin)});
    for (const Json& piece : json_field<Json>(manifest, "pieces", origin))
        table.pieces.push_back(piece_from_json(piece, origin));
    check_coverage(table, origin);
    return table;
}

}  // namespace lockstep
