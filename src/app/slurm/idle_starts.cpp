// SPDX-License-Identifier: Apache-2.0
#include "slurm/idle_starts.hpp"

#include "lockstep/core/record.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"

namespace lockstep {
namespace {

struct Starts {
    std::int64_t newest_checkpoint = -1;  ///< step, when last counted; -1: none
    std::int64_t idle = 0;
    bool is_known = false;          ///< a start was noted before
    bool is_open = false;           ///< one has begun and not ended
    std::int64_t incarnation = -1;  ///< the run's newest, when that one began
};

void describe(Record& record, Starts& starts) {
    record.field("newest_checkpoint", starts.newest_checkpoint);
    record.field("idle_starts", starts.idle);
    record.later("is_open", starts.is_open);
    record.later("incarnation", starts.incarnation);
}

fs::path file_of(const fs::path& root) {
    return root / "starts.json";
}

Starts read_starts_file(const fs::path& root) {
    const fs::path path = file_of(root);
    if (!fs::exists(path)) return {};
    auto starts = record_from_json<Starts>(read_json(path), path.string());
    starts.is_known = true;
    return starts;
}

void write_starts_file(const fs::path& root, const Starts& starts) {
    write_file_atomically(file_of(root), json_of_record(starts).dump(2) + "\n");
}

std::int64_t newest_checkpoint(const fs::path& root) {
    const auto checkpoints = list_checkpoints(root / "ckpt");
    return checkpoints.empty() ? -1 : checkpoints.back().step;
}

void count_end(Starts& starts, std::int64_t newest) {
    starts.idle = newest > starts.newest_checkpoint ? 0 : starts.idle + 1;
    starts.newest_checkpoint = newest;
}

}  // namespace

std::int64_t note_start_begin(const fs::path& root, StartsFile file) {
    Starts starts = read_starts_file(root);
    const std::int64_t newest = newest_checkpoint(root);
    if (starts.is_open) count_end(starts, newest);
    if (!starts.is_known) starts.newest_checkpoint = newest;
    starts.is_open = true;
    starts.incarnation = read_incarnation(root);
    if (file == StartsFile::update) write_starts_file(root, starts);
    return starts.idle;
}

std::int64_t incarnation_before_start(const fs::path& root) {
    return read_starts_file(root).incarnation;
}

std::int64_t note_start_end(const fs::path& root, StartsFile file) {
    Starts starts = read_starts_file(root);
    count_end(starts, newest_checkpoint(root));
    starts.is_open = false;
    starts.incarnation = -1;
    if (file == StartsFile::update) write_starts_file(root, starts);
    return starts.idle;
}

}  // namespace lockstep
