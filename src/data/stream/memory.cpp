// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "block_reader.hpp"
#include "lane_borders.hpp"
#include "ordered_work.hpp"
#include "read_plan.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {

std::uint64_t row_memory(const DatasetIndex& index, std::uint64_t rows) {
    std::uint64_t bytes = 0;
    for (const Field& field : index.fields()) bytes += aligned(rows * field.bytes_per_sample());
    return bytes;
}

std::vector<std::span<std::byte>> divided(const DatasetIndex& index,
                                          std::uint64_t rows,
                                          std::span<std::byte> memory) {
    std::vector<std::span<std::byte>> fields;
    for (const Field& field : index.fields()) {
        const std::uint64_t bytes = rows * field.bytes_per_sample();
        fields.push_back(memory.first(bytes));
        memory = memory.subspan(aligned(bytes));
    }
    return fields;
}

BatchBuffers::BatchBuffers(const DatasetIndex& index,
                           std::size_t count,
                           std::uint64_t rows,
                           const PageLock& page_lock)
    : memory_(count * row_memory(index, rows)),
      locked_(page_lock, memory_.bytes()),
      rooms_(count),
      worth_waking_((count - std::min(count, lendable_batches) + 2) / 2) {
    std::span<std::byte> rest = memory_.bytes();
    for (std::size_t i = 0; i < count; ++i) {
        rooms_[i].places = divided(index, rows, rest);
        rest = rest.subspan(row_memory(index, rows));
        free_.push_back(i);
    }
}

BatchBuffers::Lent BatchBuffers::take(Wait wait) {
    std::unique_lock lock(mutex_);
    if (wait == Wait::yes) given_back_.wait(lock, [&] { return is_stopped_ || !free_.empty(); });
    if (is_stopped_ || free_.empty()) return {};
    const std::size_t buffer = free_.back();
    free_.pop_back();
    std::shared_ptr<void> lease(
        this, [self = shared_from_this(), buffer](void*) { self->give_back(buffer); });
    return {&rooms_[buffer], std::move(lease)};
}

void BatchBuffers::give_back(std::size_t buffer) {
    bool is_worth_waking = false;
    {
        const std::scoped_lock lock(mutex_);
        free_.push_back(buffer);
        is_worth_waking = free_.size() >= worth_waking_;
    }
    if (is_worth_waking) given_back_.notify_one();
}

void BatchBuffers::stop() {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
    given_back_.notify_all();
}

namespace {

constexpr std::size_t line = 64;

// So many bytes are on their way at once. They go to the second cache: the first one's few line
// buffers held rows up to half of the speed (docs/decisions/0011).
constexpr std::size_t row_bytes_ahead = 12288;

// Longer rows are copied in parts: 12 KiB in one call took half as long again.
constexpr std::size_t most_at_once = 2048;

/// Rows one after the other, in parts.
class Parts {
  public:
    Parts(std::span<const std::byte* const> rows, std::size_t bytes) : rows_(rows), bytes_(bytes) {
        const std::size_t parts = (bytes + most_at_once - 1) / most_at_once;
        part_ = (bytes + parts * line - 1) / (parts * line) * line;
    }

    /// How many parts `bytes` are, at least one.
    std::size_t count_in(std::size_t bytes) const {
        return std::max<std::size_t>(bytes / part_, 1);
    }

    /// Empty after the last.
    std::span<const std::byte> next() {
        if (rows_.empty()) return {};
        const std::span part(rows_.front() + at_, std::min(part_, bytes_ - at_));
        at_ += part.size();
        if (at_ == bytes_) {
            at_ = 0;
            rows_ = rows_.subspan(1);
        }
        return part;
    }

  private:
    std::span<const std::byte* const> rows_;
    std::size_t bytes_, part_, at_ = 0;  // at_: in the first row
};

void prefetch(const std::byte* at) {
    constexpr int to_read = 0, second_cache = 2;
    __builtin_prefetch(at, to_read, second_cache);
}

void prefetch(std::span<const std::byte> part) {
    for (std::size_t at = 0; at < part.size(); at += line) prefetch(part.data() + at);
}

// A size that the compiler knows costs no call.
template <std::size_t bytes>
void gather_small(std::span<const std::byte* const> rows, std::byte* to) {
    constexpr std::size_t ahead = 256;
    for (const std::byte* row : rows.first(std::min(ahead, rows.size()))) prefetch(row);
    for (std::size_t i = 0; i < rows.size(); ++i, to += bytes) {
        if (i + ahead < rows.size()) prefetch(rows[i + ahead]);
        std::memcpy(to, rows[i], bytes);
    }
}

}  // namespace

void gather_rows(std::span<const std::byte* const> rows, std::size_t bytes, std::byte* to) {
    if (bytes == 1) return gather_small<1>(rows, to);
    if (bytes == 4) return gather_small<4>(rows, to);
    if (bytes == 8) return gather_small<8>(rows, to);
    Parts far(rows, bytes), near(rows, bytes), here(rows, bytes);
    for (std::size_t i = far.count_in(row_bytes_ahead); i > 0; --i) prefetch(far.next());
    for (std::size_t i = near.count_in(row_bytes_ahead / 2); i > 0; --i) near.next();
    for (auto part = here.next(); !part.empty(); part = here.next()) {
        prefetch(far.next());
        prefetch(near.next());  // again: the processor drops what it has no room for
        std::memcpy(to, part.data(), part.size());
        to += part.size();
    }
}

namespace {

constexpr std::size_t least_windows_ahead = 8;
constexpr std::size_t most_batches_ahead = 64;
constexpr std::uint64_t batch_bytes_ahead = 16u << 20;

// Bytes of each row of a window besides its values: its sample and its place in the permutation.
constexpr std::uint64_t row_overhead = sizeof(std::uint64_t) + sizeof(std::uint32_t);

// Returns this process's resident memory.
std::uint64_t resident_bytes(const fs::path& root) {
    const std::string text = text_of(root / "proc/self/statm");
    const auto begin = text.find(' ') + 1;
    const auto pages = parse_integer(text.substr(begin, text.find(' ', begin) - begin));
    return static_cast<std::uint64_t>(pages.value_or(0)) *
           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The job's limit for this stream.
struct Room {
    std::uint64_t limit = 0, share = 0, used = 0;
    std::uint64_t bytes() const { return share > used ? share - used : 0; }
};

std::optional<Room> room_of(const StreamOptions& options) {
    const auto limit = control_group_memory_limit(options.system_root);
    if (!limit) return {};
    const auto sharers = static_cast<std::uint64_t>(std::max(options.memory_sharers, 1));
    return Room{*limit, *limit / sharers, resident_bytes(options.system_root)};
}

std::string windows_text(const StreamOptions& options, std::size_t lanes) {
    if (options.order != OrderKind::lanes)
        return fmt::format("order '{}' keeps this much", order_name(options.order));
    return fmt::format(
        "a window of {} blocks for each of {} lanes, and one more", options.window_blocks, lanes);
}

std::string smaller_text(const StreamOptions& options) {
    return options.order == OrderKind::lanes ? "in a new run, use fewer lanes or smaller windows"
                                             : "use the order 'lanes' in a new run";
}

Error too_little_memory(std::uint64_t needed, const StreamOptions& options, std::size_t lanes) {
    return Error(
        "E106",
        fmt::format("reading needs {} of buffers; {} are allowed",
                    bytes_text(needed),
                    bytes_text(options.memory_bytes)),
        windows_text(options, lanes),
        fmt::format(
            "allow more: --data-memory {}MiB; or, {}", (needed >> 20) + 1, smaller_text(options)));
}

Error too_little_room(std::uint64_t needed,
                      const Room& room,
                      const StreamOptions& options,
                      std::size_t lanes) {
    return Error(
        "E224",
        fmt::format("reading needs {} of buffers; the memory limit leaves {}",
                    bytes_text(needed),
                    bytes_text(room.bytes())),
        fmt::format("the control group is limited to {}{}, of which this process has {}; {}",
                    bytes_text(room.limit),
                    options.memory_sharers > 1
                        ? fmt::format(" for {} processes", options.memory_sharers)
                        : std::string(),
                    bytes_text(room.used),
                    windows_text(options, lanes)),
        "give the job more memory; or, " + smaller_text(options) + ", or a smaller batch");
}

constexpr double unnoticed_wait = 0.01, busy_share = 0.5;  // of the time

// What adds up.
constexpr std::array seconds_of_stats{&StreamStats::read_s,
                                      &StreamStats::verify_s,
                                      &StreamStats::decode_s,
                                      &StreamStats::assemble_s,
                                      &StreamStats::wait_s};
constexpr std::array counts_of_stats{&StreamStats::bytes_read,
                                     &StreamStats::blocks_read,
                                     &StreamStats::requests,
                                     &StreamStats::retries,
                                     &StreamStats::masked_samples};

}  // namespace

std::string StreamMemory::text() const {
    return fmt::format(
        "reading with {} of the {} allowed: {} windows of {}, {} batches of {}{}, {} for each of "
        "at most {} I/O threads{}{}",
        bytes_text(bytes()),
        bytes_text(allowed_bytes),
        slabs,
        bytes_text(slab_bytes),
        batches,
        bytes_text(batch_bytes),
        are_batches_locked ? " (page-locked)" : "",
        bytes_text(reader_bytes),
        readers,
        border_bytes ? fmt::format(", {} for blocks of two lanes", bytes_text(border_bytes))
                     : std::string(),
        limit_bytes ? fmt::format("; the control group's limit is {}", bytes_text(*limit_bytes))
                    : std::string());
}

int most_io_threads(const StreamOptions& options) {
    if (options.io_threads > 0) return options.io_threads;
    return std::clamp(options.most_io_threads, 1, usable_cores());
}

StreamMemory plan_memory(const DatasetIndex& index,
                         const StreamOptions& options,
                         StreamPosition start) {
    const std::vector<RowBlock> blocks = index.blocks();
    const std::size_t held = std::max<std::size_t>(lanes_held(blocks, options, start).size(), 1);
    StreamMemory memory;
    const EpochOrder order(blocks_in(blocks, options.part), order_spec(options), start.epoch);
    memory.window_rows = order.max_window_rows();
    memory.batch_rows = most_rows(options, index.samples());
    memory.slab_bytes = row_memory(index, memory.window_rows) + memory.window_rows * row_overhead;
    memory.are_batches_locked = static_cast<bool>(options.page_lock);
    memory.batch_bytes = row_memory(index, memory.batch_rows);
    memory.reader_bytes = BlockReader::buffer_bytes(index);
    memory.allowed_bytes = options.memory_bytes;
    memory.readers = std::max(options.io_threads, 1);
    memory.slabs = held + 1;
    const std::optional<Room> room = room_of(options);
    if (room) memory.limit_bytes = room->limit;
    if (memory.bytes() > options.memory_bytes)
        throw too_little_memory(memory.bytes(), options, held);
    if (room && memory.bytes() > room->bytes())
        throw too_little_room(memory.bytes(), *room, options, held);

    // The rest goes to threads that may come, to windows and batches ahead, then to rows that lanes
    // share.
    const std::uint64_t most = std::min(options.memory_bytes, room ? room->bytes() : UINT64_MAX);
    const auto fitting = [&](std::uint64_t bytes, std::uint64_t wanted) {
        return std::min((most - memory.bytes()) / std::max<std::uint64_t>(bytes, 1), wanted);
    };
    memory.readers += static_cast<int>(
        fitting(memory.reader_bytes,
                static_cast<std::uint64_t>(most_io_threads(options) - memory.readers)));
    // All lanes begin a new window when an epoch begins. What is ahead then hides that.
    const std::uint64_t windows = held * ((order.lane_samples(0) - 1) / memory.window_rows + 1);
    const std::uint64_t ahead =
        std::min<std::uint64_t>(std::max<std::size_t>(least_windows_ahead, held), windows);
    memory.slabs += fitting(memory.slab_bytes, ahead > 0 ? ahead - 1 : 0);
    memory.batches +=
        fitting(memory.batch_bytes,
                std::min<std::uint64_t>(
                    most_batches_ahead,
                    batch_bytes_ahead / std::max<std::uint64_t>(memory.batch_bytes, 1)));
    memory.border_bytes = fitting(1, border_bytes(index, order, held));
    return memory;
}

ThreadGrowth::Advice ThreadGrowth::look(double now, const StreamStats& total) {
    const double elapsed = now - last_look_s_;
    const StreamStats spent = total - last_;
    const bool is_first = !has_begun_;
    has_begun_ = true;
    last_look_s_ = now;
    next_look_s_ = now + interval_s;
    last_ = total;
    if (is_first || elapsed <= 0) return Advice::none;
    waited_share_ = spent.wait_s / elapsed;
    const double io_s = spent.read_s + spent.verify_s + spent.decode_s;
    const bool is_busy = io_s > busy_share * elapsed * total.io_threads;
    return waited_share_ > unnoticed_wait && is_busy && total.io_threads < most_ ? Advice::add
                                                                                 : Advice::keep;
}

StreamStats& operator+=(StreamStats& total, const StreamStats& part) {
    for (const auto seconds : seconds_of_stats) total.*seconds += part.*seconds;
    for (const auto count : counts_of_stats) total.*count += part.*count;
    return total;
}

StreamStats operator-(const StreamStats& later, const StreamStats& earlier) {
    StreamStats between = later;
    for (const auto seconds : seconds_of_stats) between.*seconds -= earlier.*seconds;
    for (const auto count : counts_of_stats) between.*count -= earlier.*count;
    return between;
}

bool is_input_bound(const StreamStats& stats, double elapsed_s) {
    return stats.wait_s > unnoticed_wait * elapsed_s;
}

std::string_view binding_stage(const StreamStats& stats, double elapsed_s) {
    if (!is_input_bound(stats, elapsed_s)) return "not input-bound";
    using Stage = std::pair<double, std::string_view>;
    const std::array<Stage, 3> of_io_threads{Stage{stats.read_s, "I/O"},
                                             Stage{stats.verify_s, "verify"},
                                             Stage{stats.decode_s, "decode"}};
    const double io_s = (stats.read_s + stats.verify_s + stats.decode_s) /
                        static_cast<double>(std::max(stats.io_threads, 1));
    if (stats.assemble_s > io_s) return "assemble";
    return std::ranges::max(of_io_threads, {}, &Stage::first).second;
}

}  // namespace lockstep
