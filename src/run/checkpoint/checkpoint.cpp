// SPDX-License-Identifier: Apache-2.0
// A checkpoint exists completely or not at all, and a run that has had one always has one. The
// order in which files become visible ensures this:
//
//     .tmp-step-000200-i3/   shard-00000-of-00002.safetensors ...   each rank its own, flushed
//                            manifest.json                          what is where, with all hashes
//     rename to step-000200/                                        from here on it exists
//     latest                                                        a hint for people and tools
//     older ones removed, by rename to .trash- first                after the new one is there
//
// Pieces are ranges of elements of named tensors, so that any other number of ranks finds its part.
// Ranks load the newest checkpoint that all of them, each checking its share, found whole; newer
// damaged ones are skipped with a warning.
//
// What must never happen:
// - A start that was replaced commits: it is fenced before the manifest and once more before the
//   rename, since flushing may have taken minutes.
// - Values that are not finite are saved: the last good checkpoint would leave with the next
//   `retain`.
// - A whole checkpoint is removed to make room for a damaged one: retain() counts from the step
//   just written, and what lies beyond it was passed over as damaged. The one from which a start
//   resumed was read whole, and stays while that start saves.
// - Ranks load different checkpoints: the list is rank 0's, and each verdict is agreed on.
//
// Tested: train/checkpoint/checkpoint_test.cpp, checkpoint_save_test.cpp (every flipped bit, fenced
// writers, other numbers of ranks, damaged newer ones), e2e/resume_test.cpp, soak/kill_resume,
// soak/crash_sweep.

#include "lockstep/run/checkpoint.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::string_view step_prefix = "step-", unfinished_prefix = ".tmp-",
                           trash_prefix = ".trash-";

std::string step_name(std::int64_t step) {
    return fmt::format("{}{:06}", step_prefix, step);
}

Error damaged(const fs::path& file, const std::string& why) {
    return Error("E310",
                 fmt::format("'{}' is damaged", file.string()),
                 why,
                 "use another checkpoint; a resumed run skips this one");
}

std::error_code remove_folder(const fs::path& root, const fs::path& victim) {
    const fs::path trash = root / (std::string(trash_prefix) + victim.filename().string());
    std::error_code failed;
    fs::remove_all(trash, failed);
    fs::rename(victim, trash, failed);
    if (!failed) fs::remove_all(trash, failed);
    return failed;
}

// One that stays is no reason to end a run, but takes room.
void remove_old(const fs::path& root, const fs::path& victim) {
    const std::error_code failed = remove_folder(root, victim);
    if (failed)
        once(Level::warn,
             "the old checkpoint '{}' cannot be removed: {}",
             victim.string(),
             failed.message());
}

// Checkpoints beyond the one just written were passed over as damaged: they must not count as new.
void retain(std::int64_t newest_step, const Retention& retention, const fs::path& root) {
    auto present = list_checkpoints(root);
    while (!present.empty() && present.back().step > newest_step) {
        remove_old(root, present.back().path);
        present.pop_back();
    }
    std::vector<std::int64_t> steps;
    for (const CheckpointInfo& info : present) steps.push_back(info.step);
    const auto kept = kept_because(retention, steps);
    for (std::size_t i = 0; i < present.size(); ++i)
        if (!kept[i].any()) remove_old(root, present[i].path);
}

void name_latest(const fs::path& root, const std::string& name, const std::string& manifest) {
    write_file_atomically(root.parent_path() / "latest",
                          fmt::format("{} {}\n", name, hash128(manifest).hex()));
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

}  // namespace

SafetensorsEntry entry_of(const TensorMeta& tensor, std::uint64_t start, std::uint64_t count) {
    if (count == tensor.count()) return {.name = tensor.name, .shape = tensor.shape};
    return {.name = fmt::format("{}[{}:{}]", tensor.name, start, start + count),
            .shape = {static_cast<std::int64_t>(count)}};
}

fs::path unfinished_checkpoint(const CheckpointPlace& place, std::int64_t step) {
    return place.root /
           fmt::format("{}{}-i{}", unfinished_prefix, step_name(step), place.incarnation);
}

void commit_checkpoint(const CheckpointPlace& place,
                       const fs::path& unfinished,
                       const CheckpointState& state,
                       const std::string& manifest) {
    const std::string name = step_name(state.step);
    if (place.check_still_ours) place.check_still_ours();
    write_file_atomically(unfinished / "manifest.json", manifest);
    const fs::path final_path = place.root / name;
    if (place.check_still_ours) place.check_still_ours();  // syncing may have taken long
    if (fs::exists(final_path)) remove_folder(place.root, final_path);
    fs::rename(unfinished, final_path);
    sync_path(place.root);
    name_latest(place.root, name, manifest);
    retain(state.step, state.retention, place.root);
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

std::string KeptBecause::text() const {
    std::vector<std::string_view> words;
    if (newest) words.emplace_back("newest");
    if (best) words.emplace_back("best");
    if (every) words.emplace_back("every");
    if (read) words.emplace_back("read");
    if (rollback) words.emplace_back("rollback");
    return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

// Any of the newest, and the one that was read, may be the one to go on from, if those after it
// turn out to be damaged: each keeps what it needs.
std::vector<KeptBecause> kept_because(const Retention& retention,
                                      const std::vector<std::int64_t>& steps) {
    std::vector<KeptBecause> kept(steps.size());
    const auto wanted = static_cast<std::size_t>(std::max(retention.last, 1));
    const std::size_t first_of_newest = steps.size() - std::min(wanted, steps.size());
    std::int64_t periods = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const std::int64_t passed = retention.every > 0 ? steps[i] / retention.every : 0;
        kept[i] = {.newest = i >= first_of_newest,
                   .best = std::ranges::count(retention.best, steps[i]) > 0,
                   .every = passed > std::exchange(periods, passed),
                   .read = steps[i] == retention.read};
        if (!(kept[i].newest || kept[i].read) || retention.rollback == 0) continue;
        const std::int64_t needed = steps[i] / retention.rollback * retention.rollback;
        const auto found = std::ranges::find(steps, needed);
        if (found != steps.end())
            kept[static_cast<std::size_t>(found - steps.begin())].rollback = true;
    }
    return kept;
}

void remove_checkpoints(const fs::path& root, const std::vector<std::int64_t>& steps) {
    for (const CheckpointInfo& info : list_checkpoints(root)) {
        if (std::ranges::count(steps, info.step) == 0) continue;
        const std::error_code failed = remove_folder(root, info.path);
        if (failed) throw system_error("remove", info.path.string(), failed.value());
    }
    const auto left = list_checkpoints(root);
    if (left.empty()) return;
    const fs::path& newest = left.back().path;
    name_latest(root, newest.filename().string(), read_file(newest / "manifest.json"));
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
