// SPDX-License-Identifier: Apache-2.0
// Facts that all ranks' traces show together; every verdict is based on them. And what a verdict
// looks for in them: ranks that call different collectives under one number, GPUs that stand still.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/run/verdict.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

using Traces = std::vector<const RankTrace*>;

/// The ranks that wait in the earliest pending collective.
struct Waiting {
    std::uint32_t channel = 0;
    std::uint64_t seq = 0;  ///< 0: no rank waits
    FlightCall call;
    Traces ranks;
    double longest_s = 0;
};

struct Scene {
    /// `silent_s`: time without a heartbeat after which a rank on another node counts as gone.
    Scene(std::span<const RankTrace> all, double now_s, double silent_s = silence_s);

    Traces traces;             ///< ranks with a readable trace
    std::vector<int> missing;  ///< ranks without a file
    Waiting waiting;

    template <class Test>
    Traces where(Test&& test) const {
        Traces found;
        for (const RankTrace* trace : traces)
            if (test(*trace)) found.push_back(trace);
        return found;
    }

    /// Returns true if the rank counts as gone; on other hosts that means no heartbeat for
    /// `silent_s`.
    bool is_gone(const RankTrace& trace) const;
    bool is_alive(const RankTrace& trace) const;
    double heartbeat_age_s(const RankTrace& trace) const { return now_s_ - trace.heartbeat_s; }

    /// Returns true if it is gone without an end mark, and not by a signal that a handler could
    /// receive.
    bool is_gone_silently(const RankTrace& trace) const;

    /// Returns the time up to which the trace is valid: now for living ranks, else the last
    /// heartbeat.
    double seen_until_s(const RankTrace& trace) const;

    /// Returns the last collective of the waiting channel that the rank announced or finished.
    std::uint64_t last_enqueued(const RankTrace& trace) const;
    std::uint64_t last_finished(const RankTrace& trace) const;

    /// Returns "#812", with the channel's name if there are several.
    std::string number_text(std::uint32_t channel, std::uint64_t seq) const;

    /// Returns "all ranks finished #812; ranks 0-6 wait in #813 reduce bucket 3 (25 MiB) since
    /// 41.0s".
    std::string waiting_text() const;

    /// Returns "rank 7 last finished #812 and is in data wait since 41.0s"; for a rank that is gone
    /// "and was in data wait for 41.0s when it was last heard".
    std::string whereabouts_text(const RankTrace& trace) const;

  private:
    void find_missing(std::span<const RankTrace> all);
    void find_waiting();

    double now_s_, silent_s_;
};

/// Returns "rank 7 (node03, pid 4711)".
std::string rank_text(const RankTrace& trace);

/// Returns "rank 7 (node03, pid 4711)", or "ranks 0-3" if there are several.
std::string ranks_text(const Traces& traces);

std::vector<int> numbers_of(const Traces& traces);

/// The first number with different calls: the call of most ranks, and the ranks with another one.
struct Mismatch {
    std::uint32_t channel = 0;
    std::uint64_t seq = 0;
    FlightCall usual, other;  ///< other: call of the first culprit
    Traces culprits, rest;
    bool is_order() const { return usual.op != other.op || usual.bucket != other.bucket; }
};
std::optional<Mismatch> find_mismatch(const Scene& scene);

/// Returns Trouble::none if no rank reports its GPU. The speaker is not filled in.
Verdict gpu_verdict(const Scene& scene);

}  // namespace lockstep
