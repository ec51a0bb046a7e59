// SPDX-License-Identifier: Apache-2.0
// The state of a rank must be known even if it can no longer report it: killed, stopped, or stuck
// in a call. So each step is recorded before it happens, in a file mapped into memory: the kernel
// keeps the page when the process is gone, and a record costs a few stores, no system call.
//
//     rank-00003.ring  | header: who, phase, heartbeat, signal, end | entry 0 | 1 | ... | n-1 |
//                                                                      ^ after n-1 comes 0 again
//     an entry's stamp:    2i+2 of an older i  ->  2i+1, being written  ->  2i+2, whole
//     its life:            enqueued -> started -> ended (times, 0 until then)
//
// The only writer is the rank, on several threads: entry numbers come from one atomic counter,
// those of a channel from the one thread that uses it. Readers are other processes (watchdogs of
// other ranks, `lockstep diagnose`), at any time, without a lock that a dead writer could keep.
// They accept an entry if the stamp is the expected one before and after they read.
//
// What must never happen:
// - A reader takes half an old and half a new entry for one: hence the stamp's order of stores.
// - Recording ends the run. Disk space is reserved at the start, because a store to a mapped hole
//   on a full disk is SIGBUS, not an error code.
// - A late end() marks a later collective as ended, whose entry took the place: find() compares
//   stamps.
// - A ring says "finished" of a rank that did not: a destructor that an exception runs marks a
//   failure.
//
// Tested: run/flight/flight_recorder_test.cpp (a second process reads while one writes, kills,
// stops, damaged and foreign files, and what a note costs).

#include "lockstep/run/flight_recorder.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/numbers.hpp"

#include "flight/ring_format.hpp"
#include "flight/signs_of_life.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <exception>
#include <limits>
#include <new>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

namespace lockstep {
namespace {

/// Names by number, from 1; number 2 is not used.
constexpr std::string_view op_names[] = {
    "all-reduce", "unknown", "all-gather", "broadcast", "barrier", "reduce", "publish"};

std::uint64_t packed(const FlightCall& call, std::uint32_t channel) {
    return static_cast<std::uint64_t>(call.op) | static_cast<std::uint64_t>(channel) << 16 |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.bucket + 1)) << 32;
}

std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(now_s() * 1e9);
}

bool is_known(FlightOp op) {
    return op == FlightOp::all_reduce || (op >= FlightOp::all_gather && op <= FlightOp::publish);
}

double seconds(const RingWord& nanoseconds) {
    return static_cast<double>(nanoseconds.load(std::memory_order_acquire)) * 1e-9;
}

template <std::size_t N>
void copy_text(std::array<char, N>& to, std::string_view from) {
    to.fill('\0');
    from.copy(to.data(), N - 1);
}

}  // namespace

std::string_view name_of(FlightOp op) {
    const auto index = static_cast<std::size_t>(op) - 1;
    return index < std::size(op_names) ? op_names[index] : "unknown";
}

std::string text_of(const FlightCall& call) {
    std::string text(name_of(call.op));
    if (call.bucket >= 0) text += fmt::format(" bucket {}", call.bucket);
    if (call.bytes > 0) text += fmt::format(" ({})", bytes_text(call.bytes));
    return text;
}

fs::path ring_path(const fs::path& folder, int rank) {
    return folder / fmt::format("rank-{:05}.ring", rank);
}

std::optional<FlightEntry> whole_entry(const RingEntry& entry, std::uint64_t index) {
    constexpr auto acquire = std::memory_order_acquire;
    const std::uint64_t stamp = 2 * index + 2;
    if (entry.stamp.load(acquire) != stamp) return std::nullopt;
    const std::uint64_t what = entry.what.load(acquire);
    const std::int64_t bucket = static_cast<std::int64_t>(what >> 32) - 1;
    if (bucket > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    FlightEntry found;
    found.channel = static_cast<std::uint32_t>(what >> 16 & 0xffff);
    found.seq = entry.seq.load(acquire);
    found.call = {.op = static_cast<FlightOp>(what & 0xff),
                  .bytes = entry.bytes.load(acquire),
                  .bucket = static_cast<std::int32_t>(bucket)};
    found.enqueued_s = seconds(entry.enqueued);
    found.started_s = seconds(entry.started);
    found.ended_s = seconds(entry.ended);
    const bool makes_sense =
        found.channel < ring_channels && found.seq > 0 && is_known(found.call.op);
    const bool is_same = entry.stamp.load(acquire) == stamp;
    return makes_sense && is_same ? std::optional(found) : std::nullopt;
}

struct FlightRecorder::Mapping {
    Mapping(const fs::path& path, std::uint32_t count)
        : file(open_for_writing(path, O_RDWR | O_CREAT | O_TRUNC)),
          entries_count(count),
          bytes(ring_header_bytes + count * sizeof(RingEntry)) {
        check(static_cast<bool>(file),
              [&] { return system_error("create", path.string(), errno); });
        // Blocks that exist: a write to a hole on a full disk would end the process by SIGBUS.
        const int failed = ::posix_fallocate(file.value(), 0, static_cast<off_t>(bytes));
        check(failed == 0, [&] { return system_error("make room for", path.string(), failed); });
        memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.value(), 0);
        check(memory != MAP_FAILED, [&] { return system_error("map", path.string(), errno); });
        header = new (memory) RingHeader{};
        entries = new (static_cast<std::byte*>(memory) + ring_header_bytes) RingEntry[count]{};
    }
    ~Mapping() { ::munmap(memory, bytes); }
    Mapping& operator=(Mapping&&) = delete;

    RingEntry& entry(std::uint64_t index) const { return entries[index % entries_count]; }

    /// The entry of `ticket`, unless its place has been taken by a later one.
    RingEntry* find(Ticket ticket) const {
        RingEntry& found = entry(ticket.index);
        const bool is_same = found.stamp.load(std::memory_order_acquire) == 2 * ticket.index + 2;
        return is_same ? &found : nullptr;
    }

    UniqueFd file;
    std::uint64_t entries_count;
    std::size_t bytes;
    void* memory = nullptr;
    RingHeader* header = nullptr;
    RingEntry* entries = nullptr;
    std::array<std::uint64_t, ring_channels> last_seq{};
};

FlightRecorder::FlightRecorder(const fs::path& folder, int rank, int ranks, FlightSettings settings)
    : folder_(folder), rank_(rank), ranks_(ranks) {
    const std::uint32_t entries =
        std::bit_ceil(std::clamp(settings.entries, least_ring_entries, most_ring_entries));
    make_own_folder(folder);
    mapping_ = std::make_unique<Mapping>(ring_path(folder, rank), entries);
    const ProcessIdentity self = this_process();
    RingIdentity& identity = mapping_->header->identity;
    identity = {.version = ring_version,
                .header_bytes = ring_header_bytes,
                .entry_bytes = sizeof(RingEntry),
                .entries = entries,
                .rank = rank,
                .ranks = ranks,
                .pid = self.pid,
                .pid_start_ticks = self.start_ticks,
                .pid_namespace = self.pid_namespace,
                .start_unix_s = unix_time_s(),
                .start_s = now_s(),
                .warn_s = settings.warn_s,
                .host = {},
                .boot_id = {}};
    copy_text(identity.host, host_name());
    copy_text(identity.boot_id, self.boot_id);
    phase_word()->store(packed(PhaseMark{Phase::other, now_s()}));
    beat();
    // Last: until then a reader takes the file for no ring, not for one of rank 0.
    mapping_->header->magic.store(ring_magic, std::memory_order_release);
}

FlightRecorder::~FlightRecorder() {
    RingWord& end = mapping_->header->state.end;
    if (end.load() != 0) return;
    const auto bug = static_cast<std::uint64_t>(ExitCode::bug);
    end.store(std::uncaught_exceptions() > 0 ? end_failed + bug : end_finished);
}

std::uint32_t FlightRecorder::add_channel(std::string_view name) {
    RingHeader& header = *mapping_->header;
    const std::uint64_t id = header.state.channels.load();
    for (std::uint64_t i = 0; i < id; ++i)
        if (name == header.channel_names[i].data()) return static_cast<std::uint32_t>(i);
    expect(id < ring_channels, "a ring has room for its channels");
    copy_text(header.channel_names[id], name);
    header.state.channels.store(id + 1, std::memory_order_release);
    return static_cast<std::uint32_t>(id);
}

FlightRecorder::Ticket FlightRecorder::enqueue(std::uint32_t channel, const FlightCall& call) {
    constexpr auto release = std::memory_order_release;
    const std::uint64_t index = mapping_->header->state.next.fetch_add(1);
    RingEntry& entry = mapping_->entry(index);
    // A reader that sees any field of the new entry also sees that the stamp is odd.
    entry.stamp.exchange(2 * index + 1, std::memory_order_acq_rel);
    entry.what.store(packed(call, channel), release);
    entry.seq.store(++mapping_->last_seq[channel], release);
    entry.bytes.store(call.bytes, release);
    entry.enqueued.store(now_ns(), release);
    entry.started.store(0, release);
    entry.ended.store(0, release);
    entry.stamp.store(2 * index + 2, release);
    return {index};
}

void FlightRecorder::start(Ticket ticket) {
    RingEntry* entry = mapping_->find(ticket);
    if (entry != nullptr && entry->started.load(std::memory_order_relaxed) == 0)
        entry->started.store(now_ns(), std::memory_order_release);
}

void FlightRecorder::end(Ticket ticket) {
    RingEntry* entry = mapping_->find(ticket);
    if (entry == nullptr) return;
    const std::uint64_t now = now_ns();
    if (entry->started.load(std::memory_order_relaxed) == 0)
        entry->started.store(now, std::memory_order_release);
    entry->ended.store(now, std::memory_order_release);
}

FlightRecorder::Ticket FlightRecorder::next() const {
    return {mapping_->header->state.next.load(std::memory_order_acquire)};
}

std::optional<FlightEntry> FlightRecorder::find(Ticket ticket) const {
    return whole_entry(mapping_->entry(ticket.index), ticket.index);
}

void FlightRecorder::note_gpu(Ticket ticket, const GpuStand& stand) {
    RingGpu& gpu = mapping_->header->gpu;
    gpu.seq.store(0);
    const RingEntry* entry = mapping_->find(ticket);
    if (entry == nullptr) return;
    const std::uint64_t channel = entry->what.load() >> 16 & 0xffff;
    gpu.what.store(static_cast<std::uint64_t>(stand.place) |
                   static_cast<std::uint64_t>(stand.round & 0xff) << 8 | channel << 16 |
                   static_cast<std::uint64_t>(stand.arrived) << 32);
    for (RingWord& word : gpu.missing) word.store(0, std::memory_order_relaxed);
    for (const int rank : stand.missing)
        if (const auto bit = static_cast<std::size_t>(rank); bit < RingGpu::most_ranks)
            gpu.missing[bit / 64].fetch_or(1ull << bit % 64);
    gpu.seq.store(entry->seq.load());
}

void FlightRecorder::forget_gpu() {
    mapping_->header->gpu.seq.store(0);
}

std::optional<FlightEntry> FlightRecorder::oldest_pending() const {
    const std::uint64_t next = mapping_->header->state.next.load(std::memory_order_acquire);
    const std::uint64_t kept = std::min(next, mapping_->entries_count);
    for (std::uint64_t index = next - kept; index < next; ++index) {
        const RingEntry& entry = mapping_->entry(index);
        const std::optional<FlightEntry> found = whole_entry(entry, index);
        if (found && found->ended_s == 0) return found;
    }
    return std::nullopt;
}

void FlightRecorder::mark_running() {
    mapping_->header->state.running.store(1);
}

void FlightRecorder::mark_finished() {
    mapping_->header->state.end.store(end_finished);
}

void FlightRecorder::mark_failed(int exit_code) {
    mapping_->header->state.end.store(end_failed + static_cast<std::uint64_t>(exit_code));
}

void FlightRecorder::beat() {
    mapping_->header->state.heartbeat.store(now_ns(), std::memory_order_relaxed);
}

bool FlightRecorder::is_running() const {
    return mapping_->header->state.running.load() != 0;
}

PhaseMark FlightRecorder::phase() const {
    return unpacked_phase(mapping_->header->state.phase.load(std::memory_order_relaxed));
}

std::atomic<std::uint64_t>* FlightRecorder::phase_word() {
    return &mapping_->header->state.phase;
}

std::atomic<std::uint64_t>* FlightRecorder::signal_word() {
    return &mapping_->header->state.signal;
}

void FlightRecorder::flush() const {
    ::sync_file_range(mapping_->file.value(), 0, 0, SYNC_FILE_RANGE_WRITE);
}

}  // namespace lockstep
