// SPDX-License-Identifier: Apache-2.0
// The sizes of a stream's pools, and a check against the job's memory.
#pragma once

#include "lockstep/data/batch_stream.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Batches that a caller may hold while it requests another one, and that one.
inline constexpr std::size_t lendable_batches = 4;

/// The pools of a stream. A value.
struct StreamMemory {
    std::uint64_t window_rows = 0, batch_rows = 0;
    std::size_t slabs = 0, batches = lendable_batches;
    int readers = 1;
    std::uint64_t slab_bytes = 0, batch_bytes = 0, reader_bytes = 0;
    std::uint64_t border_bytes = 0;  ///< bytes of LaneBorders
    bool are_batches_locked = false;
    std::uint64_t allowed_bytes = 0;           ///< limit of the options
    std::optional<std::uint64_t> limit_bytes;  ///< limit of the control group

    std::uint64_t bytes() const {
        return slabs * slab_bytes + batches * batch_bytes +
               static_cast<std::uint64_t>(readers) * reader_bytes + border_bytes;
    }
    /// Returns "reading: 246 MiB of the 256 MiB allowed: 80 windows of 3 MiB, ...".
    std::string text() const;
};

/// Returns the largest number of I/O threads under `options`.
int most_io_threads(const StreamOptions& options);

/// Returns as many windows and threads as the options permit, and the limit of the control group
/// minus this process's present memory. Errors: E106 if the options allow too little; E224 if the
/// limit does.
StreamMemory plan_memory(const DatasetIndex& index,
                         const StreamOptions& options,
                         StreamPosition start);

/// Looks at a stream's totals now and then. Where the caller waited for more than 1 % of the time
/// since the last look and the I/O threads were busy, one more is worth trying; where they were
/// not, something else is slow. A value; knows nothing of threads or clocks.
class ThreadGrowth {
  public:
    /// Between two looks. Long enough for a share of 1 % to mean something.
    static constexpr double interval_s = 0.2;

    explicit ThreadGrowth(int most) : most_(most) {}

    bool is_due(double now) const { return now >= next_look_s_; }

    enum class Advice {
        none,  ///< the first look only begins: a stream that starts is always waited for
        keep,
        add
    };
    /// `total.io_threads` are in use at `now`.
    Advice look(double now, const StreamStats& total);

    /// The share of the time that the caller waited between the last two looks.
    double waited_share() const { return waited_share_; }

  private:
    int most_;
    double next_look_s_ = 0, last_look_s_ = 0, waited_share_ = 0;
    bool has_begun_ = false;
    StreamStats last_;
};

}  // namespace lockstep
