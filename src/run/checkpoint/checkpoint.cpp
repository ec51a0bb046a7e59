// SPDX-License-Identifier: Apache-2.0
// A checkpoint is there whole or not at all, and a run that has had one always has one. The order
// in which things become visible is the whole art:
//
//     .tmp-step-000200-i3/   shard-00000-of-00002.safetensors ...   each rank its own, flushed
//                            manifest.json                          what is where, with all hashes
//     rename to step-000200/                                        from here on it exists
//     latest                                                        a hint for people and tools
//     older ones removed, by rename to .trash- first                after the new one is there
//
// Pieces are ranges of elements of named tensors, so that any other number of ranks finds its part.
// What is loaded is the newest checkpoint that all ranks, each checking its share, found whole;
// newer damaged ones are passed over, and said.
//
// What must never happen:
// - A start that was replaced commits: it is fenced before the manifest and once more before the
//   rename, since flushing may have taken minutes.
// - Values that are not finite are saved: the last good checkpoint would leave with the next
//   `retain`.
// - A whole checkpoint is removed to make room for a damaged one: retain() counts from the step
//   just written, and what lies beyond it was passed over as damaged.
// - Ranks load different checkpoints: the list is rank 0's, and each verdict is agreed on.
//
// Tested: train/checkpoint/checkpoint_test.cpp (every flipped bit, fenced writers, other numbers of
// ranks, damaged newer ones), e2e/resume_test.cpp, soak/kill_resume.

#include "lockstep/run/checkpoint.hpp"

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
#include <charconv>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::string_view step_prefix = "step-", unfinished_prefix = ".tmp-",
                           trash_prefix = ".trash-";

std::string step_name(std::int64_t step) {
    return fmt::format("{}{:06}", step_prefix, step);
}

void check_finite(std::span<const TensorMeta> tensors, std::span<const TensorPiece> pieces) {
    for (const TensorPiece& piece : pieces)
        for (std::uint64_t i = 0; i < piece.count; ++i)
            check(std::isfinite(piece.data[i]), [&] {
                return Error("E701",
                             fmt::format("'{}' has a value that is not finite at element {}",
                                         tensors[piece.tensor].name,
                                         piece.start + i),
                             "it is not saved, so that the last good checkpoint stays the newest",
                             "lower --lr, or look at the data with 'lockstep data verify'");
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
        return Error("E403",
                     fmt::format("a checkpoint needs {} in '{}'", bytes_text(bytes), root.string()),
                     fmt::format("{} are free, and the last checkpoint stays until the new one is "
                                 "there",
                                 bytes_text(free)),
                     way_to_room(root));
    });
}

// A whole tensor is stored under its own name and shape, a part of one as a range of elements.
SafetensorsEntry entry_of(const TensorMeta& tensor, std::uint64_t start, std::uint64_t count) {
    if (count == tensor.count()) return {.name = tensor.name, .shape = tensor.shape};
    return {.name = fmt::format("{}[{}:{}]", tensor.name, start, start + count),
            .shape = {static_cast<std::int64_t>(count)}};
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

Error damaged(const fs::path& file, const std::string& why) {
    return Error("E310",
                 fmt::format("'{}' is damaged", file.string()),
                 why,
                 "use another checkpoint; a resumed run passes over this one");
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

void remove_folder(const fs::path& root, const fs::path& victim) {
    const fs::path trash = root / (std::string(trash_prefix) + victim.filename().string());
    std::error_code ignored;
    fs::rename(victim, trash, ignored);
    fs::remove_all(trash, ignored);
}

// Checkpoints beyond the one just written were passed over as damaged: they must not count as new.
// Any of the newest may be the one to go on from, if those after it turn out to be damaged.
void retain(std::int64_t newest_step, const CheckpointPlace& place) {
    const fs::path& root = place.root;
    auto present = list_checkpoints(root);
    while (!present.empty() && present.back().step > newest_step) {
        remove_folder(root, present.back().path);
        present.pop_back();
    }
    std::vector<std::int64_t> kept = place.kept_steps;
    const auto is_kept = [&](const auto& info) { return std::ranges::count(kept, info.step) > 0; };
    std::erase_if(present, is_kept);
    const auto newest = std::min(static_cast<std::size_t>(std::max(place.keep, 1)), present.size());
    for (const CheckpointInfo& info : std::span(present).last(newest))
        if (place.needed_by) kept.push_back(place.needed_by(info.step));
    for (const CheckpointInfo& info : std::span(present).first(present.size() - newest))
        if (!is_kept(info)) remove_folder(root, info.path);
}

void commit(const CheckpointPlace& place,
            const fs::path& unfinished,
            std::int64_t step,
            const std::string& manifest) {
    const std::string name = step_name(step);
    if (place.check_still_ours) place.check_still_ours();
    write_file_atomically(unfinished / "manifest.json", manifest);
    const fs::path final_path = place.root / name;
    if (place.check_still_ours) place.check_still_ours();  // syncing may have taken long
    if (fs::exists(final_path)) remove_folder(place.root, final_path);
    fs::rename(unfinished, final_path);
    sync_path(place.root);
    write_file_atomically(place.root.parent_path() / "latest",
                          fmt::format("{} {}\n", name, hash128(manifest).hex()));
    retain(step, place);
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

// The header of every container is, byte for byte, the one that the manifest implies.
void check_headers(const fs::path& checkpoint, const CheckpointManifest& table) {
    std::map<std::string, std::map<std::uint64_t, SafetensorsEntry>> files;  // by file and offset
    for (const StoredPiece& piece : table.pieces)
        files[piece.file][piece.offset] =
            entry_of(table.tensors[piece.tensor], piece.start, piece.count);
    for (const auto& [file, by_offset] : files) {
        std::vector<SafetensorsEntry> entries;
        for (const auto& [offset, entry] : by_offset) entries.push_back(entry);
        const std::string expected = safetensors_header(entries);
        const fs::path path = path_beneath(checkpoint, file);
        std::string found(expected.size(), '\0');
        const UniqueFd fd = open_for_reading(path);
        read_at(fd.value(), std::as_writable_bytes(std::span(found)), 0, path);
        check(found == expected, [&] {
            return damaged(path, "its header differs from what the checkpoint's manifest implies");
        });
    }
}

// Collective. Whether all ranks find their share of the checkpoint whole; says why not.
bool is_whole(const Communicator& ranks, const fs::path& path) {
    try {
        agree(ranks, [&] { verify_checkpoint(path, ranks.rank(), ranks.size()); });
        return true;
    } catch (const AgreedError& error) {
        if (kind_of(error) == ErrorKind::format_newer) throw;
        once(Level::warn,
             "checkpoint {} is passed over: {}",
             path.filename().string(),
             error.what());
        return false;
    }
}

}  // namespace

void save_checkpoint(const Communicator& ranks,
                     const CheckpointPlace& place,
                     const CheckpointState& state,
                     std::span<const TensorMeta> tensors,
                     std::span<const TensorPiece> pieces) {
    const fs::path unfinished =
        place.root /
        fmt::format("{}{}-i{}", unfinished_prefix, step_name(state.step), place.incarnation);
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
        commit(place, unfinished, state.step, checkpoint_manifest_text(manifest));
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
            "each was passed over above",
            "restore one from a copy, or start a new run");
    });
    return std::nullopt;
}

std::vector<CheckpointInfo> list_checkpoints(const fs::path& root) {
    std::vector<CheckpointInfo> found;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(root, missing)) {
        const std::string name = entry.path().filename().string();
        std::int64_t step = 0;
        const char* end = name.data() + name.size();
        if (!name.starts_with(step_prefix)) continue;
        const auto [stop, error] = std::from_chars(name.data() + step_prefix.size(), end, step);
        if (error == std::errc{} && stop == end) found.push_back({entry.path(), step});
    }
    std::ranges::sort(found, {}, &CheckpointInfo::step);
    return found;
}

CheckpointState read_checkpoint_state(const fs::path& checkpoint) {
    return read_checkpoint_manifest(checkpoint).state;
}

void verify_checkpoint(const fs::path& checkpoint,
                       int part,
                       int parts,
                       const std::function<void(std::uint64_t)>& has_read) {
    const CheckpointManifest table = read_checkpoint_manifest(checkpoint);
    if (part == 0) check_headers(checkpoint, table);
    std::vector<std::byte> bytes;
    std::uint64_t total = 0;
    for (std::size_t i = static_cast<std::size_t>(part); i < table.pieces.size();
         i += static_cast<std::size_t>(parts)) {
        bytes.resize(table.pieces[i].count * sizeof(float));
        read_whole_piece(checkpoint, table, table.pieces[i], bytes);
        total += bytes.size();
        if (has_read) has_read(total);
    }
}

void read_whole_piece(const fs::path& checkpoint,
                      const CheckpointManifest& manifest,
                      const StoredPiece& piece,
                      std::span<std::byte> out) {
    const fs::path file = path_beneath(checkpoint, piece.file);
    const UniqueFd fd = open_for_reading(file);
    const std::size_t got = read_at(fd.value(), out, piece.offset, file);
    check(hash128(out.first(got)).hex() == piece.hash, [&] {
        return damaged(file,
                       fmt::format("elements {} to {} of '{}' differ from what was written",
                                   piece.start,
                                   piece.start + piece.count,
                                   manifest.tensors[piece.tensor].name));
    });
}

void remove_unfinished_checkpoints(const fs::path& root) {
    check_no_link(root);
    std::error_code missing;
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(root, missing)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(unfinished_prefix) || name.starts_with(trash_prefix))
            leftovers.push_back(entry.path());
    }
    for (const fs::path& leftover : leftovers) fs::remove_all(leftover, missing);
}

}  // namespace lockstep
