// SPDX-License-Identifier: Apache-2.0
// The bytes of a ring file, version 1: a header of 4096 bytes, then entries of 64.
#pragma once

#include "lockstep/run/flight_recorder.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep {

inline constexpr std::uint64_t ring_magic = 0x474e49524b43304cull;  // "L0CKRING", little endian
inline constexpr std::uint32_t ring_version = 1;
inline constexpr std::size_t ring_header_bytes = 4096;
inline constexpr std::uint32_t least_ring_entries = 64;
inline constexpr std::uint32_t most_ring_entries = 1u << 20;
inline constexpr std::size_t ring_channels = 8;

using RingWord = std::atomic<std::uint64_t>;
static_assert(RingWord::is_always_lock_free && sizeof(RingWord) == 8, "shared between processes");

/// The identity of a ring's owner; written once, before `magic`.
struct RingIdentity {
    std::uint32_t version, header_bytes, entry_bytes, entries;
    std::int32_t rank, ranks;
    std::int64_t pid;
    std::uint64_t pid_start_ticks, pid_namespace;
    double start_unix_s, start_s;  ///< the same moment on both clocks: unix_time_s() and now_s()
    double warn_s;
    std::array<char, 64> host;
    std::array<char, 40> boot_id;
};

/// Changing words, each written atomically. Times are nanoseconds of now_s().
struct RingState {
    RingWord phase;      ///< packed(PhaseMark)
    RingWord running;    ///< 0 during set-up
    RingWord heartbeat;  ///< time of the watchdog's last heartbeat
    RingWord signal;     ///< number of the last signal that a handler received, 0: none
    RingWord end;        ///< 0, or end_finished, or end_failed + exit code
    RingWord next;       ///< entries begun
    RingWord channels;   ///< number of valid names
};
inline constexpr std::uint64_t end_finished = 1, end_failed = 256;

/// The progress of the rank's GPU during long waits. `seq` is 0 while the other words change.
struct RingGpu {
    static constexpr std::size_t most_ranks = 28'672;
    RingWord seq;   ///< number of the collective; 0: unknown
    RingWord what;  ///< place | round << 8 | channel << 16 | parts arrived << 32
    std::array<RingWord, most_ranks / 64> missing;  ///< a bit for each rank
};

struct RingHeader {
    RingWord magic;
    RingIdentity identity;
    alignas(64) RingState state;
    std::array<std::array<char, 24>, ring_channels> channel_names;
    RingGpu gpu;  ///< 0 in files of versions without it
};
static_assert(sizeof(RingHeader) <= ring_header_bytes);

/// A sequence lock: `stamp` is 2 i + 1 while entry i is being written and 2 i + 2 from then on;
/// started and ended change from 0 later.
struct alignas(64) RingEntry {
    RingWord stamp;
    RingWord what;  ///< op | channel << 16 | (bucket + 1) << 32
    RingWord seq, bytes;
    RingWord enqueued, started, ended;
};
static_assert(sizeof(RingEntry) == 64);

/// Returns entry `index`; nothing while it is being written, or if it was overwritten or is
/// invalid. It works in the writer's memory, and in a copy of its file.
std::optional<FlightEntry> whole_entry(const RingEntry& entry, std::uint64_t index);

}  // namespace lockstep
