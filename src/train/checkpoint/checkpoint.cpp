// SPDX-License-Identifier: Apache-2.0
// All ranks together save a checkpoint and load one. src/run/checkpoint/checkpoint.cpp explains how
// it exists completely or not at all.

#include "lockstep/train/checkpoint.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/safetensors.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

void check_finite(std::span<const TensorMeta> tensors, std::span<const TensorPiece> pieces) {
    for (const TensorPiece& piece : pieces)
        for (std::uint64_t i = 0; i < piece.count; ++i)
            check(std::isfinite(piece.data[i]), [&] {
                return Error("E701",
                             fmt::format("'{}' has a value that is not finite at element {}",
                                         tensors[piece.tensor].name,
                                         piece.start + i),
                             "no checkpoint is written, so that the last good one stays the newest",
                             "lower --lr, or check the data with 'lockstep data verify'");
            });
}

// With more than one checkpoint an old one can go; nothing else makes the new one smaller.
std::string way_to_room(const fs::path& root) {
    const std::vector<CheckpointInfo> kept = list_checkpoints(root);
    const std::string move =
        "move the run's folder to a file system with more room (mv), and give "
        "its new place with --run";
    return kept.size() < 2 ? "free space there, or " + move
                           : fmt::format("remove the oldest one: rm -r {}; or {}",
                                         shell_word(kept.front().path.string()),
                                         move);
}

void check_space(const fs::path& root, std::span<const TensorMeta> tensors) {
    std::uint64_t bytes = 1u << 20;
    for (const TensorMeta& tensor : tensors) bytes += tensor.count() * sizeof(float);
    const std::uint64_t free = free_bytes(root);
    check(free >= bytes, [&] {
        return Error(
            "E403",
            fmt::format("a checkpoint needs {} in '{}'", bytes_text(bytes), root.string()),
            fmt::format(
                "{} are free, and the last checkpoint is kept until the new one is complete",
                bytes_text(free)),
            way_to_room(root));
    });
}

std::vector<StoredPiece> write_shard(const fs::path& folder,
                                     const std::string& file,
                                     std::span<const TensorMeta> tensors,
                                     std::span<const TensorPiece> pieces) {
    std::vector<SafetensorsEntry> entries;
    std::uint64_t total = 0;
    for (const TensorPiece& piece : pieces) {
        entries.push_back(entry_of(tensors[piece.tensor], piece.start, piece.count));
        entries.back().values = {piece.data, piece.count};
        total += piece.count * sizeof(float);
    }
    Progress progress("saving", total, ProgressUnit::bytes);  // rank 0's share stands for all
    write_safetensors(folder / file, entries, [&](std::uint64_t bytes) { progress.update(bytes); });
    std::vector<StoredPiece> stored;
    for (std::size_t i = 0; i < pieces.size(); ++i)
        stored.push_back({pieces[i].tensor,
                          pieces[i].start,
                          pieces[i].count,
                          file,
                          entries[i].offset,
                          entries[i].hash.hex()});
    return stored;
}

std::vector<StoredPiece> gather_pieces(const Communicator& ranks,
                                       std::span<const StoredPiece> mine) {
    Json list = Json::array();
    for (const StoredPiece& piece : mine) list.push_back(json_of_record(piece));
    std::vector<StoredPiece> all;
    for (const std::string& text : ranks.all_gather(list.dump()))
        for (const Json& piece : parse_json(text, "piece list"))
            all.push_back(record_from_json<StoredPiece>(piece, "piece list"));
    return all;
}

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

void save_checkpoint(const Communicator& ranks,
                     const CheckpointPlace& place,
                     const CheckpointState& state,
                     std::span<const TensorMeta> tensors,
                     std::span<const TensorPiece> pieces) {
    const fs::path unfinished = unfinished_checkpoint(place, state.step);
    from_root(ranks, [&] {
        if (place.check_still_ours) place.check_still_ours();  // a run that was moved has no ckpt
        make_own_folder(place.root);
        check_space(place.root, tensors);
        fs::remove_all(unfinished);
        make_own_folder(unfinished);
        return std::string();
    });
    std::optional<PhaseScope> waiting;
    const auto mine = agree(ranks, [&] {
        check_finite(tensors, pieces);
        const std::string file =
            fmt::format("shard-{:05}-of-{:05}.safetensors", ranks.rank(), ranks.size());
        auto written = write_shard(unfinished, file, tensors, pieces);
        if (place.clock != nullptr) waiting.emplace(*place.clock, Phase::wait);
        return written;
    });
    waiting.reset();
    const CheckpointManifest manifest{
        state, {tensors.begin(), tensors.end()}, gather_pieces(ranks, mine)};
    from_root(ranks, [&] {
        commit_checkpoint(place, unfinished, state.step, checkpoint_manifest_text(manifest));
        return std::string();
    });
}

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
