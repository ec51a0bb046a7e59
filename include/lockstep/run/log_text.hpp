// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lines of merged logs as people read them: equal lines of several ranks as one.
#pragma once

#include "lockstep/run/log_merge.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A line, and the ranks that wrote it: the texts are those of the first. A launcher's has no
/// ranks.
struct FoldedLine {
    double time_s = 0;  ///< of the first
    Level level = Level::info;
    LogKind kind = LogKind::said;
    bool is_for_all = false;
    std::string host{}, text{}, alike{}, code{}, why{};
    std::vector<int> failed{};
    std::vector<std::uint64_t> rank_bits{};  ///< bit i of word j: rank 64 j + i
    std::size_t times = 1;                   ///< the launcher said it

    bool has(int rank) const;        ///< whether that rank wrote it
    std::vector<int> ranks() const;  ///< in order
    std::size_t count() const;       ///< of its ranks
};

/// How far a fold looks.
struct FoldLimits {
    double window_s = 1;                             ///< lines further apart are two
    double echo_s = 10;                              ///< for which launchers repeat lines
    std::size_t most_lines = 8192;                   ///< that wait for others
    std::size_t most_bytes = std::size_t{16} << 20;  ///< of their texts
};

/// Takes lines in order of time and gives them on in that order, each after `window_s`, or sooner
/// where too many wait: equal ones of several ranks as one, with the time of the first. Two lines
/// are equal if level and `alike` are, or text where there is none. A rank's own repetitions stay.
/// What a launcher says as well goes, though it comes up to `echo_s` after the rank's own line, as
/// does what a rank left in its stderr and its launcher has told; what a launcher says again within
/// the window is counted.
class LogFold {
  public:
    using Emit = std::function<void(const FoldedLine&)>;  ///< what becomes of a line

    /// `emit` is called by the functions below.
    LogFold(const FoldLimits& limits, Emit emit);

    /// Takes a line, and gives on those that have waited long enough by its time.
    void add(const LogLine& line);

    /// Gives on what is earlier than `time_s` less the window.
    void pass(double time_s);

    /// Gives on all.
    void finish();

  private:
    struct Slot {
        std::uint64_t hash = 0, number = 0;
    };
    FoldedLine& line_of(std::uint64_t number) { return ring_[number % ring_.size()]; }
    Slot* slot_for(const LogLine& line, std::uint64_t hash);
    void begin(const LogLine& line);
    bool is_repeated(const LogLine& line, std::uint64_t hash);
    void emit_first();

    FoldLimits limits_;
    Emit emit_;
    std::vector<FoldedLine> ring_;  // lines first_ to next_ - 1, by number
    std::vector<Slot> slots_;  // the newest line of each hash; stale where it has been given on
    std::uint64_t first_ = 1, next_ = 1;
    std::size_t bytes_ = 0;
};

/// Whether terminals colour what is shown.
enum class Colours { off, on };

/// How lines are shown.
struct LogStyle {
    int ranks = 1;                   ///< in all
    bool names_hosts = false;        ///< of lines of one rank
    Colours colours = Colours::off;  ///< warnings, errors, and what is less important
};

/// `text` on one line, without escapes of terminals and other control characters.
std::string plain_text(std::string_view text);

/// "2026-01-31T12:34:56.789Z [0-7]  warn  ...": lines as text. One thread.
class LogText {
  public:
    /// For lines of one start, whose columns fit its ranks.
    explicit LogText(const LogStyle& style);

    /// `line` and a line feed, behind what `out` holds; before it `mark`, as of a comparison.
    void append(std::string& out, const FoldedLine& line, std::string_view mark = {});

  private:
    void append_time(std::string& out, double time_s);
    std::string ranks_label(const FoldedLine& line) const;

    LogStyle style_;
    std::size_t label_width_;
    std::int64_t second_ = -1;
    std::string second_text_;  // "2026-01-31T12:34:56."
};

}  // namespace lockstep
