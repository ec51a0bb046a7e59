// SPDX-License-Identifier: Apache-2.0
/// @file
/// Progress of a long operation: a live line on a terminal, or plain lines from time to time; and
/// the texts of such lines.
#pragma once

#include "lockstep/core/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

/// Output of progress. Tests use their own; a program uses log_sink().
struct ProgressSink {
    bool is_live = false;                          ///< show() reaches a terminal
    std::function<void(std::string_view)> show;    ///< replaces the live line; "" removes it
    std::function<void(std::string_view)> say;     ///< a plain line for file and terminal
    std::function<void(std::string_view)> record;  ///< a plain line for the file only
    std::function<double()> now_s;
    bool sums_up = true;  ///< finish() reports the amount and the time

    /// Returns rank 0's terminal and log; nothing on other ranks.
    static ProgressSink log_sink();

    /// For commands whose stdout a program reads (--json): plain lines go to stderr, and the end is
    /// not reported. On rank 0 only.
    static ProgressSink beside_output();
};

/// The unit of progress.
enum class ProgressUnit { count, bytes };

/// Shows progress. One thread only.
class Progress {
  public:
    /// `label` ("packing") begins lines without an own text; `total` 0 means that the end is
    /// unknown. Plain lines come every `plain_every_s`, live ones at most ten times a second.
    Progress(std::string label,
             std::uint64_t total,
             ProgressUnit unit = ProgressUnit::count,
             ProgressSink sink = ProgressSink::log_sink(),
             double plain_every_s = 30);

    /// For work in stages: a label and a total come with each update().
    explicit Progress(ProgressSink sink = ProgressSink::log_sink());
    ~Progress();
    Progress& operator=(Progress&&) = delete;

    /// Returns true if update() would show something now, so that callers need not format a line.
    bool is_due() const;

    /// Reports that `done` of `total` are done; shows `line` when it is time. Without a line it
    /// writes its own: "packing 1.2 GiB of 4 GiB | 312 MiB/s".
    void update(std::uint64_t done, std::string_view line = {});

    /// Reports the same for the stage `label`. Another label or total ends the previous stage.
    void update(std::string_view label, std::uint64_t done, std::uint64_t total, ProgressUnit unit);

    /// Sets the work done before this object was made (a resumed run): it does not count in rate
    /// and ETA.
    void start_at(std::uint64_t done) { first_ = done; }

    /// Removes the live line and, if the sink wants that, reports the amount and the time. The
    /// destructor only removes the line.
    void finish();

    /// Returns the seconds to the end at the average rate so far; negative if unknown.
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

/// Numbers of the steps since the last report; `step` is the last of them.
struct StepReport {
    std::int64_t epoch = 0, step = 0;
    double loss = 0, lr = 0, samples_per_s = 0;
    PhaseSeconds phases{};
    std::uint64_t memory_bytes = 0;  ///< resident memory; 0: unknown
};

/// Returns "step 1200 | loss 0.4183 | lr 4.0e-2 | 14.2k samples/s | data 1 % comm 4 % wait 2 % |
/// mem 1.2 GiB".
std::string step_line(const StepReport& report);

/// Returns "[#####---------------]  25 % eta 4m12s | `text`", cut to `columns`; below 30 columns
/// without the bar. `fraction` is clamped to [0, 1]; a negative `eta_s` is left out.
std::string live_line(double fraction, double eta_s, const std::string& text, std::size_t columns);

/// Returns the front of `line`, at most `columns` bytes, which no terminal shows wider; no UTF-8
/// character is cut.
std::string cut_to_columns(const std::string& line, std::size_t columns);

/// Returns three digits: "14.2k", "873", "1.31M".
std::string rate_text(double per_second);

/// Returns the width of the terminal on stdout, or of the controlling terminal if that has none; 80
/// if stdout is no terminal. It is read at each call, because it may have been resized.
std::size_t terminal_columns();

}  // namespace lockstep
