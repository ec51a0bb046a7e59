// SPDX-License-Identifier: Apache-2.0
// Waiting for other processes of the same node: flags in shared memory; spin briefly, then let
// others run; and the seconds spent waiting, measured where the waiting is.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace lockstep {

/// The time for which a rank spins before it yields its core.
enum class Patience {
    /// For messages: each check is a system call, and the kernel may need this core to deliver
    /// them.
    none,
    /// Ranks outnumber cores: the awaited rank may need this very core.
    little,
    /// Each rank has a core. A core yielded to another process is lost for that one's whole time
    /// slice.
    much,
};

/// Collective over ranks of one node. Compares their number with that of their cores.
inline Patience patience_of(const Communicator& ranks) {
    cpu_set_t own, all;
    CPU_ZERO(&own);
    CPU_ZERO(&all);
    ::sched_getaffinity(0, sizeof own, &own);
    const std::string bytes(reinterpret_cast<const char*>(&own), sizeof own);
    for (const std::string& gathered : ranks.all_gather(bytes)) {
        cpu_set_t theirs;
        std::memcpy(&theirs, gathered.data(), sizeof theirs);
        CPU_OR(&all, &all, &theirs);
    }
    return CPU_COUNT(&all) < ranks.size() ? Patience::little : Patience::much;
}

inline constexpr double no_deadline = std::numeric_limits<double>::infinity();

inline void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// A few dozen pauses cost less than a system call and a change of process.
inline int spins_before_yielding(Patience patience) {
    if (patience == Patience::none) return 0;
    return patience == Patience::much ? 5000 : 50;
}

/// Lets others have the core of a rank that has waited for `waited_s` seconds. A long wait becomes
/// longer by a hundredth at most, and needs little of the core, as of a rank whose peer is lost.
inline void leave_core(double waited_s) {
    constexpr double longest_s = 2e-4, shortest_s = 5e-5;  // a timer of the kernel is not finer
    const double pause_s = std::min(waited_s / 100, longest_s);
    if (pause_s < shortest_s)
        ::sched_yield();
    else
        ::usleep(static_cast<useconds_t>(pause_s * 1e6));
}

/// Waits until `done()` is true. Returns false if that took longer than `limit_s` seconds.
template <class Done>
bool spin_until(Done&& done, Patience patience = Patience::little, double limit_s = no_deadline) {
    for (int spins = spins_before_yielding(patience); spins > 0; --spins) {
        if (done()) return true;
        pause_core();
    }
    const double begin_s = now_s();
    while (!done()) {
        const double waited_s = now_s() - begin_s;
        if (waited_s > limit_s) return done();
        leave_core(waited_s);
    }
    return true;
}

/// Adds up the lengths of scopes.
class WaitClock {
  public:
    /// Runs `wait` and adds its duration.
    template <class Work>
    void count(Work&& wait) {
        const double begin = now_s();
        wait();
        seconds_ += now_s() - begin;
    }
    double take() { return std::exchange(seconds_, 0.0); }

  private:
    double seconds_ = 0;
};

/// A growing count for each rank, on a cache line of its own. Only its owner writes it, and a
/// waiting rank can name the ranks that it waits for.
class RankFlags {
  public:
    static std::size_t bytes_for(int ranks) {
        return static_cast<std::size_t>(ranks) * sizeof(Line);
    }

    /// `memory`: bytes_for(ranks) zeros of a shared window. All ranks construct theirs before any
    /// waits.
    RankFlags(std::byte* memory, int rank, int ranks, Patience patience = Patience::little)
        : lines_(reinterpret_cast<Line*>(memory)), rank_(rank), ranks_(ranks), patience_(patience) {
        // Only its own: another rank may have raised its count already.
        new (&line(rank).count) std::atomic<std::uint64_t>(0);
    }

    /// Increments this rank's count: ranks that see it also see what this rank wrote before.
    /// Returns the new count.
    std::uint64_t raise() {
        line(rank_).count.store(++raised_, std::memory_order_release);
        return raised_;
    }

    bool all_reached(std::uint64_t count) const {
        for (int rank = 0; rank < ranks_; ++rank)
            if (!has_reached(rank, count)) return false;
        return true;
    }

    /// Returns the ranks that have not reached it. Any thread.
    std::vector<int> missing(std::uint64_t count) const {
        std::vector<int> ranks;
        for (int rank = 0; rank < ranks_; ++rank)
            if (!has_reached(rank, count)) ranks.push_back(rank);
        return ranks;
    }

    /// Waits until every rank has reached `count`. Returns false if that took longer than
    /// `limit_s`.
    bool wait(std::uint64_t count, double limit_s = no_deadline) const {
        // Each begins with its neighbour, so that not all of them read the same line at once.
        int next = (rank_ + 1) % ranks_;
        const auto all_came = [&] {
            while (next != rank_ && has_reached(next, count))
                next = next + 1 == ranks_ ? 0 : next + 1;
            return next == rank_;
        };
        return spin_until(all_came, patience_, limit_s);
    }

  private:
    struct alignas(64) Line {
        std::atomic<std::uint64_t> count;
    };
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

    Line& line(int rank) const { return lines_[rank]; }
    bool has_reached(int rank, std::uint64_t count) const {
        return line(rank).count.load(std::memory_order_acquire) >= count;
    }

    Line* lines_;
    int rank_, ranks_;
    Patience patience_;
    std::uint64_t raised_ = 0;
};

}  // namespace lockstep
