// SPDX-License-Identifier: Apache-2.0
/// @file
/// Records a rank's state in a file that outlives it: a ring of collectives, phase, heartbeat, end.
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

/// The progress of a GPU. The numbers are part of the format of ring files.
enum class GpuPlace : std::uint8_t {
    before = 1,  ///< in work before the collective
    inside = 2,  ///< in the collective
    silent = 3,  ///< in the collective, and does not even copy some bytes on another stream
};

/// The first collective of an Exchange that a GPU has not finished.
struct GpuStand {
    std::int64_t step = 0;              ///< publish() calls before it
    int bucket = -1;                    ///< bucket of reduce(); -1: publish()
    int round = 0;                      ///< number of the collective's group, in order
    GpuPlace place = GpuPlace::before;  ///< the progress of the GPU
    std::vector<int> missing = {};      ///< ranks whose part has not arrived, if known
    int arrived = 0;                    ///< number of other ranks whose parts have arrived
};

/// Called repeatedly during a wait; nothing: the wait is over.
using StandListener = std::function<void(const std::optional<GpuStand>&)>;

/// The kind of a collective. The numbers are part of the file format; 2 is not used.
enum class FlightOp : std::uint8_t {
    all_reduce = 1,
    all_gather = 3,
    broadcast = 4,
    barrier = 5,
    reduce = 6,   ///< Exchange: the sum of one bucket
    publish = 7,  ///< Exchange: all ranks see the owners' values
};
std::string_view name_of(FlightOp op);  ///< name in messages: "all-reduce", ...

/// One collective with the arguments that must be equal on all ranks; a difference is a caller's
/// bug.
struct FlightCall {
    FlightOp op = FlightOp::barrier;  ///< kind of the collective
    std::uint64_t bytes = 0;          ///< size of one rank's buffer
    std::int32_t bucket = -1;         ///< -1: none
    bool operator==(const FlightCall&) const = default;
};

/// Returns "all-reduce (1 MiB)", "reduce bucket 3 (25 MiB)", "barrier".
std::string text_of(const FlightCall& call);

/// The n-th collective (from 1) of one channel, which is a communicator with its own order.
struct FlightEntry {
    std::uint32_t channel = 0;  ///< number returned by add_channel()
    std::uint64_t seq = 0;      ///< n, from 1
    FlightCall call;            ///< the collective and its arguments
    /// Seconds of now_s() of the rank's machine; 0 if it has not happened. enqueued: other ranks
    /// may rely on this rank; started: it waits or works in it; ended: it has the result.
    double enqueued_s = 0, started_s = 0, ended_s = 0;
    bool operator==(const FlightEntry&) const = default;
};

/// The size of a rank's record.
struct FlightSettings {
    std::uint32_t entries = 4096;  ///< rounded up to a power of two, at least 64
    double warn_s = 60;            ///< longer waits are reported by readers
};

/// The writer. All functions but the constructor take tens of nanoseconds and no lock. A reader in
/// another process sees each record whole or not at all, even after SIGKILL. docs/diagnose.md has
/// the format. Any thread may call; one thread at a time for each channel.
class FlightRecorder {
  public:
    /// Makes `folder`/rank-NNNNN.ring (0600) and reserves its space. Errors: E401, E402, E405.
    FlightRecorder(const fs::path& folder, int rank, int ranks, FlightSettings settings = {});

    /// Marks the end unless that is done: as finished, or as failed during an exception.
    ~FlightRecorder();
    FlightRecorder& operator=(FlightRecorder&&) = delete;

    /// Returns the channel of that name, and makes it if it is new. All ranks add the same channels
    /// in the same order. At most 8, names at most 23 bytes.
    std::uint32_t add_channel(std::string_view name);

    /// Names an entry until the ring overwrites its place; later calls with it have no effect.
    struct Ticket {
        std::uint64_t index = 0;  ///< number of the entry over all channels
    };

    /// Notes a collective before it begins: from now on other ranks may rely on this rank.
    Ticket enqueue(std::uint32_t channel, const FlightCall& call);

    /// Notes that the rank now waits or works in it. If it is not called, end() notes both.
    void start(Ticket ticket);

    /// Notes that its result is available. Does nothing once the entry is overwritten.
    void end(Ticket ticket);

    /// Returns the ticket of the next enqueue() on any channel.
    Ticket next() const;

    /// Returns the present entry; nothing once it is overwritten.
    std::optional<FlightEntry> find(Ticket ticket) const;

    /// Notes the progress of this rank's GPU in the first collective that it has not finished;
    /// `ticket` names it. Of `missing` only ranks below 28,672 are kept. One thread at a time.
    void note_gpu(Ticket ticket, const GpuStand& stand);
    void forget_gpu();  ///< its position is no longer known

    /// Returns the oldest entry that has no end.
    std::optional<FlightEntry> oldest_pending() const;

    /// Notes that set-up is over: from now on, a rank that waits for others is not "stuck in init".
    void mark_running();
    /// Notes that the work is done: other ranks need nothing more from this rank.
    void mark_finished();

    /// Notes that this rank ends with an error; readers show the code and do not count it as dead.
    void mark_failed(int exit_code);

    /// Notes that this process runs. Readers on other hosts have no other sign of life.
    void beat();

    bool is_running() const;  ///< mark_running() was called
    PhaseMark phase() const;  ///< the phase in phase_word()

    /// Returns the word for PhaseClock::mirror_to(); valid for the lifetime of this.
    std::atomic<std::uint64_t>* phase_word();

    /// Returns the word for mirror_signals_to(); valid for the lifetime of this.
    std::atomic<std::uint64_t>* signal_word();

    /// Returns the folder of the records of this start's ranks.
    const fs::path& folder() const { return folder_; }
    int rank() const { return rank_; }    ///< rank of the writer
    int ranks() const { return ranks_; }  ///< number of ranks that record into that folder

    /// Asks the kernel to write the file's pages, without waiting: for readers on other hosts.
    void flush() const;

  private:
    struct Mapping;

    fs::path folder_;
    int rank_, ranks_;
    std::unique_ptr<Mapping> mapping_;
};

/// Returns `folder`/rank-00003.ring.
fs::path ring_path(const fs::path& folder, int rank);

}  // namespace lockstep
