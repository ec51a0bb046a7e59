// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/rank_trace.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"

#include "flight/ring_format.hpp"
#include "flight/signs_of_life.hpp"
#include "logs/rank_log.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

namespace lockstep {
namespace {

constexpr int most_ranks = 1 << 20;

/// Errors: E222, caught in this file, with the words of RankTrace::damage.
void require(bool ok, const char* otherwise) {
    check(ok, [&] { return Error("E222", otherwise); });
}

/// Opens without following links and without waiting at what is no file.
UniqueFd open_ring(const fs::path& path) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    require(static_cast<bool>(file), "it cannot be opened");
    struct stat facts {};
    require(::fstat(file.value(), &facts) == 0 && S_ISREG(facts.st_mode), "it is no file");
    return file;
}

template <class T>
void read_whole(const UniqueFd& file, std::span<T> to, std::uint64_t at, const fs::path& path) {
    const auto bytes = std::as_writable_bytes(to);
    require(read_at(file.value(), bytes, at, path) == bytes.size(), "it is cut short");
}

/// A copy of a file's header on the heap: it holds atomics, which cannot be moved.
std::unique_ptr<RingHeader> read_header(const UniqueFd& file, const fs::path& path) {
    auto header = std::make_unique<RingHeader>();
    read_whole(file, std::span(header.get(), 1), 0, path);
    require(header->magic.load() == ring_magic, "it is no ring of Lockstep's, or not whole yet");
    const RingIdentity& identity = header->identity;
    require(identity.version == ring_version, "it has another format version");
    require(identity.header_bytes == ring_header_bytes &&
                identity.entry_bytes == sizeof(RingEntry) &&
                identity.entries >= least_ring_entries && identity.entries <= most_ring_entries &&
                std::has_single_bit(identity.entries),
            "its sizes make no sense");
    require(identity.ranks >= 1 && identity.ranks <= most_ranks && identity.rank >= 0 &&
                identity.rank < identity.ranks && identity.pid > 0,
            "its rank or process makes no sense");
    require(std::isfinite(identity.start_unix_s) && std::isfinite(identity.start_s) &&
                std::isfinite(identity.warn_s),
            "its times make no sense");
    return header;
}

template <std::size_t N>
std::string text_in(const std::array<char, N>& field) {
    return printable(std::string(field.data(), std::find(field.begin(), field.end(), '\0')));
}

constexpr std::size_t block_entries = 256;

/// Up to block_entries that lie side by side in the file, copied twice, one copy after the other: a
/// writer that changes an entry during one of them leaves them different, or with a stamp that says
/// so, whatever the order in which bytes are copied.
class Entries {
  public:
    Entries(const UniqueFd& file, std::uint64_t place, std::size_t count, const fs::path& path) {
        for (auto* copy : {&first_, &second_})
            read_whole(file,
                       std::span(*copy).first(count),
                       ring_header_bytes + place * sizeof(RingEntry),
                       path);
    }

    /// The one at `i` in them, if it is entry `index` of the ring.
    std::optional<FlightEntry> at(std::size_t i, std::uint64_t index) const {
        const auto before = whole_entry(first_.at(i), index);
        const auto after = whole_entry(second_.at(i), index);
        const bool is_same = before && after && before->channel == after->channel &&
                             before->seq == after->seq && before->call == after->call &&
                             before->enqueued_s == after->enqueued_s;
        return is_same ? after : std::nullopt;
    }

  private:
    std::array<RingEntry, block_entries> first_, second_;
};

/// Appends entries `index` to `next` of a ring of `size`, their times since 1970.
void read_entries(const UniqueFd& file,
                  const fs::path& path,
                  const RingIdentity& ring,
                  std::uint64_t next,
                  std::vector<FlightEntry>& to) {
    const double to_unix_s = ring.start_unix_s - ring.start_s;
    std::uint64_t index = next - std::min<std::uint64_t>(next, ring.entries);
    while (index < next) {
        const std::uint64_t place = index % ring.entries;
        const auto count = static_cast<std::size_t>(
            std::min({next - index, ring.entries - place, std::uint64_t{block_entries}}));
        const Entries block(file, place, count, path);
        for (std::size_t i = 0; i < count; ++i, ++index) {
            std::optional<FlightEntry> entry = block.at(i, index);
            if (!entry) continue;
            for (double* time : {&entry->enqueued_s, &entry->started_s, &entry->ended_s})
                if (*time > 0) *time += to_unix_s;
            to.push_back(*entry);
        }
    }
}

/// Leaves what is not over yet, and the newest `most` of the others or so.
void trim(std::vector<FlightEntry>& entries, std::size_t most) {
    const std::size_t old = entries.size() - std::min(entries.size(), most);
    const auto kept_from = entries.begin() + static_cast<std::ptrdiff_t>(old);
    const auto is_over = [](const FlightEntry& entry) { return entry.ended_s > 0; };
    entries.erase(std::remove_if(entries.begin(), kept_from, is_over), kept_from);
    entries.shrink_to_fit();
}

void read_state(const RingHeader& header, double to_unix_s, RankTrace& trace) {
    const RingState& state = header.state;
    const PhaseMark phase = unpacked_phase(state.phase.load());
    trace.phase = phase.phase;
    trace.phase_since_s = to_unix_s + phase.since_s;
    trace.is_running = state.running.load() != 0;
    trace.heartbeat_s = to_unix_s + static_cast<double>(state.heartbeat.load()) * 1e-9;
    trace.signal = static_cast<int>(std::min<std::uint64_t>(state.signal.load(), 127));
    const std::uint64_t end = state.end.load();
    if (end == end_finished) trace.end = FlightEnd::finished;
    if (end >= end_failed) {
        trace.end = FlightEnd::failed;
        trace.exit_code = static_cast<int>(std::min<std::uint64_t>(end - end_failed, 255));
    }
    const auto names = std::min<std::uint64_t>(state.channels.load(), ring_channels);
    for (std::uint64_t i = 0; i < names; ++i)
        trace.channels.push_back(text_in(header.channel_names[i]));
}

/// Only what was the same twice.
GpuTrace read_gpu(const RingGpu& before, const RingGpu& after, int ranks) {
    GpuTrace trace;
    const std::uint64_t what = after.what.load(), place = what & 0xff;
    if (before.seq.load() != after.seq.load() || before.what.load() != what || place < 1 ||
        place > static_cast<std::uint64_t>(GpuPlace::silent))
        return trace;
    trace.seq = after.seq.load();
    trace.channel = static_cast<std::uint32_t>(what >> 16 & 0xffff);
    trace.round = static_cast<int>(what >> 8 & 0xff);
    trace.place = static_cast<GpuPlace>(place);
    trace.arrived = static_cast<std::uint32_t>(what >> 32);
    const auto most = std::min(static_cast<std::size_t>(ranks), RingGpu::most_ranks);
    for (std::size_t rank = 0; rank < most; ++rank)
        if ((after.missing[rank / 64].load() >> rank % 64 & 1) != 0)
            trace.missing.push_back(static_cast<int>(rank));
    return trace;
}

ProcessIdentity process_in(const RingIdentity& identity) {
    return {.boot_id = text_in(identity.boot_id),
            .pid_namespace = identity.pid_namespace,
            .pid = identity.pid,
            .start_ticks = identity.pid_start_ticks};
}

void read_ring(const fs::path& path, std::size_t most, RankTrace& trace) {
    const UniqueFd file = open_ring(path);
    const auto header = read_header(file, path);
    const RingIdentity& identity = header->identity;
    require(identity.rank == trace.rank, "it is another rank's");
    trace.ranks = identity.ranks;
    trace.host = text_in(identity.host);
    trace.pid = identity.pid;
    trace.warn_s = identity.warn_s;
    // First the process, then what it left: a rank that ends in between has left its end mark.
    trace.life = life_of(process_in(identity));
    const std::uint64_t noted = header->state.next.load();
    read_entries(file, path, identity, noted, trace.entries);
    trim(trace.entries, most);
    const auto latest = read_header(file, path);
    read_state(*latest, identity.start_unix_s - identity.start_s, trace);
    trace.gpu = read_gpu(header->gpu, latest->gpu, trace.ranks);
}

/// Nothing if that is no name of a ring.
std::optional<int> rank_of_ring(const fs::path& path) {
    const auto rank = rank_of_file(path, ".ring");
    return rank.value_or(most_ranks) < most_ranks ? rank : std::nullopt;
}

}  // namespace

std::optional<ProcessIdentity> read_ring_process(const fs::path& ring) try {
    return process_in(read_header(open_ring(ring), ring)->identity);
} catch (const Error&) {
    return std::nullopt;
}

LastWords read_last_words(const fs::path& ring) try {
    const auto header = read_header(open_ring(ring), ring);
    const int signal = static_cast<int>(header->state.signal.load() & 127);
    return {header->state.end.load() != 0, is_crash(signal) ? 0 : signal};
} catch (const Error&) {
    return {};
}

void put_on_clock(RankTrace& trace, double ahead_s) {
    trace.phase_since_s -= ahead_s;
    trace.heartbeat_s -= ahead_s;
    for (FlightEntry& entry : trace.entries)
        for (double* time : {&entry.enqueued_s, &entry.started_s, &entry.ended_s})
            if (*time > 0) *time -= ahead_s;
}

RankTrace read_rank_trace(const fs::path& path, std::size_t most) {
    RankTrace trace;
    trace.rank = rank_of_ring(path).value_or(0);
    try {
        read_ring(path, most, trace);
    } catch (const Error& error) {
        trace.damage = error.what();
    }
    return trace;
}

std::vector<RankTrace> read_rank_traces(const fs::path& folder) {
    std::vector<fs::path> rings;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
        if (rank_of_ring(entry.path())) rings.push_back(entry.path());
    constexpr std::size_t least_kept = 64, most_together = 1 << 20;
    const std::size_t most = std::max(least_kept, most_together / std::max(rings.size(), 1UL));
    std::vector<RankTrace> traces;
    for (const fs::path& ring : rings) traces.push_back(read_rank_trace(ring, most));
    check(!traces.empty(), [&] {
        return Error("E663",
                     fmt::format("no flight records in '{}'", folder.string()),
                     "ranks write them once they have joined; a run that failed earlier, or was "
                     "made by an older version, has none",
                     "read the log of each rank");
    });
    std::ranges::sort(traces, {}, &RankTrace::rank);
    add_node_beats(folder, traces);
    return traces;
}

}  // namespace lockstep
