// SPDX-License-Identifier: Apache-2.0
#include "spin.hpp"

#include <cstring>
#include <string>

namespace lockstep {

RankFlags::RankFlags(std::byte* memory, int rank, int ranks, Patience patience)
    : lines_(reinterpret_cast<Line*>(memory)), rank_(rank), ranks_(ranks), patience_(patience) {
    // Only its own: another rank may have raised its count already.
    new (&line(rank).count) std::atomic<std::uint64_t>(0);
}

std::uint64_t RankFlags::raise() {
    line(rank_).count.store(++raised_, std::memory_order_release);
    return raised_;
}

bool RankFlags::all_reached(std::uint64_t count) const {
    for (int rank = 0; rank < ranks_; ++rank)
        if (!has_reached(rank, count)) return false;
    return true;
}

std::vector<int> RankFlags::missing(std::uint64_t count) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_; ++rank)
        if (!has_reached(rank, count)) ranks.push_back(rank);
    return ranks;
}

bool RankFlags::wait(std::uint64_t count, double limit_s) const {
    // Each begins with its neighbour, so that not all of them read the same line at once.
    int next = (rank_ + 1) % ranks_;
    const auto all_came = [&] {
        while (next != rank_ && has_reached(next, count)) next = next + 1 == ranks_ ? 0 : next + 1;
        return next == rank_;
    };
    return spin_until(all_came, patience_, limit_s);
}

Patience patience_of(const Communicator& ranks) {
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

}  // namespace lockstep
