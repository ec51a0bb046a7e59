// SPDX-License-Identifier: Apache-2.0
/// @file
/// Records what a rank does in a file that outlives it: a ring of collectives, phase, heartbeat,
/// end.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

/// Where a GPU is. The numbers are part of the format of ring files.
enum class GpuPlace : std::uint8_t {
    before = 1,  ///< in work that comes before the collective
    inside = 2,  ///< in the collective
    silent = 3,  ///< in the collective, and does not even copy some bytes on another stream
};

/// The first collective of an Exchange that a GPU has not finished.
struct GpuStand {
    std::int64_t step = 0;              ///< publish() calls before it
    int bucket = -1;                    ///< of reduce(); -1: publish()
    int round = 0;                      ///< of the collective's groups, one behind the other
    GpuPlace place = GpuPlace::before;  ///< where the GPU is
    std::vector<int> missing = {};      ///< ranks whose part has not arrived, where that is known
    int arrived = 0;                    ///< how many others' parts have
};

/// Told again and again while a wait lasts; nothing: it is over.
using StandListener = std::function<void(const std::optional<GpuStand>&)>;

/// What a collective does. The numbers are part of the file format; 2 is not used.
enum class FlightOp : std::uint8_t {
    all_reduce = 1,
    all_gather = 3,
    broadcast = 4,
    barrier = 5,
    reduce = 6,   ///< Exchange: the sum of one bucket
    publish = 7,  ///< Exchange: everybody sees the owners' values
};
std::string_view name_of(FlightOp op);  ///< "all-reduce", ...

/// One collective as all ranks call it; whatever differs between ranks is a bug of the caller.
struct FlightCall {
    FlightOp op = FlightOp::barrier;  ///< which collective
    std::uint64_t bytes = 0;          ///< of one rank's buffer
    std::int32_t bucket = -1;         ///< -1: none
    bool operator==(const FlightCall&) const = default;
};

/// "all-reduce (1 MiB)", "reduce bucket 3 (25 MiB)", "barrier".
std::string text_of(const FlightCall& call);

/// The n-th collective (from 1) of one channel: a communicator with an order of its own.
struct FlightEntry {
    std::uint32_t channel = 0;  ///< number that add_channel() gave
    std::uint64_t seq = 0;      ///< n, from 1
    FlightCall call;            ///< what was called
    /// Seconds of now_s() of the rank's machine; 0 if it has not happened. enqueued: others may
    /// count on this rank; started: it waits or works in it; ended: it has the result.
    double enqueued_s = 0, started_s = 0, ended_s = 0;
    bool operator==(const FlightEntry&) const = default;
};

/// How much a rank's record keeps.
struct FlightSettings {
    std::uint32_t entries = 4096;  ///< rounded up to a power of two, at least 64
    double warn_s = 60;            ///< waiting longer than this is worth a word; for readers
};

/// The writer. Everything but construction costs tens of nanoseconds, takes no lock, and is seen
/// whole or not at all by a reader in another process, even after SIGKILL. docs/diagnose.md has the
/// format. Any thread may call; one thread at a time for each channel.
class FlightRecorder {
  public:
    /// Makes `folder`/rank-NNNNN.ring (0600), its space reserved. Errors: E401, E402, E405.
    FlightRecorder(const fs::path& folder, int rank, int ranks, FlightSettings settings = {});

    /// Marks the end, unless that is done: as finished, or as failed during an exception.
    ~FlightRecorder();
    FlightRecorder(const FlightRecorder&) = delete;
    FlightRecorder& operator=(const FlightRecorder&) = delete;

    /// The channel of that name, made if it is new; the same ones in the same order on every rank.
    /// At most 8, names at most 23 bytes.
    std::uint32_t add_channel(std::string_view name);

    /// Names an entry until the ring has come round to its place again; then it means nothing.
    struct Ticket {
        std::uint64_t index = 0;  ///< of the entry, counted over all channels
    };

    /// Notes a collective before it begins: from here on others may count on this rank.
    Ticket enqueue(std::uint32_t channel, const FlightCall& call);

    /// Notes that the rank now waits or works in it. Without it, end() notes both.
    void start(Ticket ticket);

    /// Notes that its result is there. Does nothing once the ring has come round.
    void end(Ticket ticket);

    /// What the next enqueue() on any channel will give.
    Ticket next() const;

    /// The entry as it stands; nothing once the ring has come round.
    std::optional<FlightEntry> find(Ticket ticket) const;

    /// Notes where this rank's GPU is, in the first collective that it has not finished, whose
    /// `ticket` this is. Of `missing` only ranks below 28,672 are kept. One thread at a time.
    void note_gpu(Ticket ticket, const GpuStand& stand);
    void forget_gpu();  ///< its position is no longer known

    /// The oldest entry that has no end.
    std::optional<FlightEntry> oldest_pending() const;

    /// Set-up is over: from now on, a rank that waits for others is not "stuck in init".
    void mark_running();
    /// The work is done: the others have nothing more to expect of this rank.
    void mark_finished();

    /// This rank ends with an error; readers show the code and do not take it for dead.
    void mark_failed(int exit_code);

    /// Notes that this process runs. Readers on other hosts know of its life by nothing else.
    void beat();

    bool is_running() const;  ///< mark_running() was called
    PhaseMark phase() const;  ///< what phase_word() says now

    /// For PhaseClock::mirror_to() and mirror_signals_to(); valid for the lifetime of this.
    std::atomic<std::uint64_t>* phase_word();

    /// As phase_word(), for mirror_signals_to().
    std::atomic<std::uint64_t>* signal_word();

    const fs::path& folder() const { return folder_; }  ///< where the ranks of this start record
    int rank() const { return rank_; }                  ///< of the writer
    int ranks() const { return ranks_; }                ///< how many record into that folder

    /// Asks the kernel to write what is in memory, without waiting: for readers on other hosts.
    void flush() const;

  private:
    struct Mapping;

    fs::path folder_;
    int rank_, ranks_;
    std::unique_ptr<Mapping> mapping_;
};

/// `folder`/rank-00003.ring
fs::path ring_path(const fs::path& folder, int rank);

}  // namespace lockstep
