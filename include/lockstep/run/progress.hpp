// SPDX-License-Identifier: Apache-2.0
/// @file
/// Progress of a long operation: a live line on a terminal, elsewhere a plain line from time to
/// time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

/// Where progress is shown. Tests bring their own; a program uses log_sink().
struct ProgressSink {
    bool is_live = false;                          ///< show() reaches a terminal
    std::function<void(std::string_view)> show;    ///< replaces the live line; "" removes it
    std::function<void(std::string_view)> say;     ///< a plain line for file and terminal
    std::function<void(std::string_view)> record;  ///< a plain line for the file alone
    std::function<double()> now_s;
    bool sums_up = true;  ///< finish() says how much was done in which time

    /// Rank 0's terminal and log; nothing on other ranks.
    static ProgressSink log_sink();

    /// For commands whose stdout is read by a program (--json): plain lines go to stderr, and the
    /// end is not told. On rank 0 only.
    static ProgressSink beside_output();
};

/// What progress counts: how it is written.
enum class ProgressUnit { count, bytes };

/// One thread only.
class Progress {
  public:
    /// `label` ("packing") begins lines that are given no text; `total` 0 means that the end is not
    /// known. Plain lines come every `plain_every_s`, live ones at most ten times a second.
    Progress(std::string label,
             std::uint64_t total,
             ProgressUnit unit = ProgressUnit::count,
             ProgressSink sink = ProgressSink::log_sink(),
             double plain_every_s = 30);

    /// Of work that comes in stages: a label and a total come with each update().
    explicit Progress(ProgressSink sink = ProgressSink::log_sink());
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// Whether update() would show anything now: spares callers the making of a line.
    bool is_due() const;

    /// `done` of `total` are done; shows `line` when it is time. Without a line, progress writes
    /// its own: "packing 1.2 GiB of 4 GiB | 312 MiB/s".
    void update(std::uint64_t done, std::string_view line = {});

    /// The same of the stage `label`. Another label or total ends the stage before.
    void update(std::string_view label, std::uint64_t done, std::uint64_t total, ProgressUnit unit);

    /// Work done before this object was made (a resumed run): not counted in rate and ETA.
    void start_at(std::uint64_t done) { first_ = done; }

    /// Removes the live line; says how much was done in which time, where the sink wants that. The
    /// destructor only removes.
    void finish();

    /// Seconds to the end at the average rate so far; negative while not known.
    double eta_s() const;

  private:
    std::string own_line() const;
    std::string amount(double value) const;
    double rate() const;

    std::string label_;
    std::uint64_t total_, first_ = 0, done_ = 0;
    ProgressUnit unit_;
    ProgressSink sink_;
    double plain_every_s_, start_s_, last_live_s_, last_plain_s_;
};

}  // namespace lockstep
