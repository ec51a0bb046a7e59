// SPDX-License-Identifier: Apache-2.0
/// @file
/// The one clock by which a start's times are compared: that of its rank 0.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/observe/log_merge.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

/// How the clocks of a start's ranks, and of whoever reads about it, stand to rank 0's: by what the
/// ranks measured when they began (ClockEvent). Without logs all clocks count as equal.
class RunClock {
  public:
    RunClock() = default;

    /// `ranks`: the start's, in order. `log`: of its rank 0.
    explicit RunClock(std::vector<RankLogFacts> ranks, fs::path log = {});

    /// Of `rank`; 0 where that was not measured.
    double ahead_s(int rank) const;

    /// Of `host`, by the ranks there; nothing where none was.
    std::optional<double> ahead_on(std::string_view host) const;

    /// Now on rank 0's clock, for a reader on `host` whose clock says `here_s`. `heard_s`: the
    /// newest sign of life on rank 0's clock; 0: none. On a host without ranks the reader's clock
    /// counts as right. If by it the sign of life is old or lies in the future, and by the time
    /// that the file system gives the log's last line it is neither, the latter counts.
    double present_s(double here_s, std::string_view host, double heard_s) const;

  private:
    std::vector<RankLogFacts> ranks_;
    fs::path log_;
};

/// Of the start whose logs lie in `folder`, which need not be there.
RunClock read_run_clock(const fs::path& folder);

/// How far a sign of life may lie in the future: clocks that are measured or kept in time differ by
/// less.
inline constexpr double early_s = 2;

/// So long after its newest sign of life a rank of another host may still be at work: file servers
/// show late what it wrote.
inline constexpr double server_silence_s = 120;

}  // namespace lockstep
