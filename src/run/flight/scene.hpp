// SPDX-License-Identifier: Apache-2.0
// What all ranks' traces show together: the questions that every verdict is made of.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/run/verdict.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

using Traces = std::vector<const RankTrace*>;

/// Who waits in the earliest collective that anybody waits in.
struct Waiting {
    std::uint32_t channel = 0;
    std::uint64_t seq = 0;  ///< 0: nobody waits
    FlightCall call;
    Traces ranks;
    double longest_s = 0;
};

class Scene {
  public:
    /// `silent_s`: after how long without a heartbeat a rank elsewhere is gone.
    Scene(std::span<const RankTrace> traces, double now_s, double silent_s = silence_s);

    /// Ranks that could be read, and those without a file.
    const Traces& traces() const { return traces_; }
    const std::vector<int>& missing() const { return missing_; }
    const Waiting& waiting() const { return waiting_; }

    template <class Test>
    Traces where(Test&& test) const {
        Traces found;
        for (const RankTrace* trace : traces_)
            if (test(*trace)) found.push_back(trace);
        return found;
    }

    /// Gone for what can be known: on other hosts, no heartbeat for `silent_s`.
    bool is_gone(const RankTrace& trace) const;
    bool is_alive(const RankTrace& trace) const;
    double heartbeat_age_s(const RankTrace& trace) const { return now_s_ - trace.heartbeat_s; }

    /// Gone without an end mark, and not for a signal from outside that a handler could see.
    bool is_gone_silently(const RankTrace& trace) const;

    /// Until when the trace tells something: now for the living, else the last heartbeat.
    double seen_until_s(const RankTrace& trace) const;

    /// The last collective of the waiting channel that the rank announced or finished.
    std::uint64_t last_enqueued(const RankTrace& trace) const;
    std::uint64_t last_finished(const RankTrace& trace) const;

    /// "#812", with the channel's name where there are several.
    std::string number_text(std::uint32_t channel, std::uint64_t seq) const;

    /// "all ranks finished #812; ranks 0-6 wait in #813 reduce bucket 3 (25 MiB) since 41.0s"
    std::string waiting_text() const;

    /// "rank 7 last finished #812 and is in data wait since 41.0s"; of one that is gone "and was in
    /// data wait for 41.0s when it was last heard"
    std::string whereabouts_text(const RankTrace& trace) const;

  private:
    void find_missing(std::span<const RankTrace> all);
    void find_waiting();

    double now_s_, silent_s_;
    Traces traces_;
    std::vector<int> missing_;
    Waiting waiting_;
};

/// "rank 7 (node03, pid 4711)"
std::string rank_text(const RankTrace& trace);

/// "rank 7 (node03, pid 4711)", or "ranks 0-3" where they are several.
std::string ranks_text(const Traces& traces);

std::vector<int> numbers_of(const Traces& traces);

}  // namespace lockstep
