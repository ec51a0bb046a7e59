// SPDX-License-Identifier: Apache-2.0
// All ranks together load a checkpoint. src/run/checkpoint/checkpoint.cpp explains how it exists
// completely or not at all.

#include "lockstep/train/checkpoint.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/progress.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

void check_same_tensors(std::span<const TensorMeta> stored,
                        std::span<const TensorMeta> wanted,
                        const fs::path& path) {
    const auto describe = [](const TensorMeta& tensor) {
        return fmt::format("'{}' [{}]", tensor.name, fmt::join(tensor.shape, ","));
    };
    for (std::size_t i = 0; i < std::max(stored.size(), wanted.size()); ++i) {
        const std::string has = i < stored.size() ? describe(stored[i]) : "no more tensors";
        const std::string wants = i < wanted.size() ? describe(wanted[i]) : "no more tensors";
        check(has == wants, [&] {
            return Error("E304",
                         fmt::format("checkpoint '{}' does not fit the model", path.string()),
                         fmt::format("it has {} where the model has {}", has, wants),
                         "use the model that the run was created with");
        });
    }
}

void read_part(const fs::path& file, const StoredPiece& stored, const TensorPiece& wanted) {
    const std::uint64_t begin = std::max(stored.start, wanted.start);
    const std::uint64_t end = std::min(stored.start + stored.count, wanted.start + wanted.count);
    if (begin >= end) return;
    const UniqueFd fd = open_for_reading(file);
    const std::span<float> target(wanted.data + (begin - wanted.start), end - begin);
    read_at(fd.value(),
            std::as_writable_bytes(target),
            stored.offset + (begin - stored.start) * sizeof(float),
            file);
}

CheckpointState load_from(const fs::path& path,
                          std::span<const TensorMeta> tensors,
                          std::span<const TensorPiece> pieces) {
    const CheckpointManifest manifest = read_checkpoint_manifest(path);
    check_same_tensors(manifest.tensors, tensors, path);
    for (const TensorPiece& wanted : pieces)
        for (const StoredPiece& stored : manifest.pieces)
            if (stored.tensor == wanted.tensor)
                read_part(path_beneath(path, stored.file), stored, wanted);
    return manifest.state;
}

// Collective. Whether all ranks find their share of the checkpoint whole; says why not.
bool is_whole(const Communicator& ranks, const fs::path& path) {
    try {
        agree(ranks, [&] { verify_checkpoint(path, ranks.rank(), ranks.size()); });
        return true;
    } catch (const AgreedError& error) {
        if (kind_of(error) == ErrorKind::format_newer) throw;
        once(Level::warn, "checkpoint {} is skipped: {}", path.filename().string(), error.what());
        return false;
    }
}

}  // namespace

std::optional<CheckpointState> load_checkpoint(const Communicator& ranks,
                                               const fs::path& root,
                                               std::span<const TensorMeta> tensors,
                                               std::span<const TensorPiece> pieces,
                                               std::optional<std::int64_t> step) {
    const std::string listing = from_root(ranks, [&] {
        Json names = Json::array();
        for (const CheckpointInfo& info : list_checkpoints(root))
            if (!step || info.step == *step) names.push_back(info.path.filename().string());
        return names.dump();
    });
    const Json names = parse_json(listing, "checkpoint list");
    for (std::size_t left = names.size(); left > 0; --left) {
        const fs::path path = root / names[left - 1].get<std::string>();
        if (is_whole(ranks, path))
            return agree(ranks, [&] { return load_from(path, tensors, pieces); });
    }
    check(names.empty() || step, [&] {
        return Error(
            "E303",
            fmt::format("none of {} checkpoints in '{}' is whole", names.size(), root.string()),
            "the warnings above give the reasons",
            "restore one from a copy, or start a new run");
    });
    return std::nullopt;
}

}  // namespace lockstep
