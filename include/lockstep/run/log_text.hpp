// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text of merged logs for people: equal lines of several ranks become one.
#pragma once

#include "lockstep/run/log_merge.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A line, and the ranks that wrote it. The texts are those of the lowest rank. A launcher's line
/// has no ranks.
struct FoldedLine {
    double time_s = 0;  ///< time of the first
    Level level = Level::info;
    LogKind kind = LogKind::said;
    bool is_for_all = false;
    std::string host{}, text{}, alike{}, code{}, why{};
    std::vector<int> failed{};
    std::vector<std::uint64_t> rank_bits{};  ///< bit i of word j: rank 64 j + i
    std::size_t times = 1;                   ///< how often the launcher wrote it

    bool has(int rank) const;        ///< true if that rank wrote it
    std::vector<int> ranks() const;  ///< in order
    std::size_t count() const;       ///< number of its ranks
};

/// Limits of folding.
struct FoldLimits {
    double window_s = 1;            ///< lines further apart are not folded
    double echo_s = 10;             ///< time in which launchers repeat lines of ranks
    std::size_t most_lines = 8192;  ///< most lines that wait for others
    std::size_t most_bytes = std::size_t{16} << 20;  ///< most bytes of their texts
};

/// Takes lines in order of time and emits them in that order, each after `window_s`, or sooner if
/// too many wait. Equal lines of several ranks become one, with the earliest time. Two lines
/// are equal if level and `alike` are, or the text if `alike` is empty. A rank's own repetitions
/// stay. A launcher's copy of a rank's line is dropped if it comes up to `echo_s` after that line;
/// so is a line of a rank's stderr that its launcher has written. Repetitions of a launcher's line
/// within the window are counted.
class LogFold {
  public:
    using Emit = std::function<void(const FoldedLine&)>;  ///< receives each line

    /// The functions below call `emit`.
    LogFold(const FoldLimits& limits, Emit emit);

    /// Takes a line, and emits those that have waited long enough by its time.
    void add(const LogLine& line);

    /// Emits lines earlier than `time_s` minus the window.
    void pass(double time_s);

    /// Emits all lines.
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
    std::vector<Slot> slots_;       // newest line of each hash; stale if that was emitted
    std::uint64_t first_ = 1, next_ = 1;
    std::size_t bytes_ = 0;
};

/// Use of colours on terminals.
enum class Colours { off, on };

/// Style of lines.
struct LogStyle {
    int ranks = 1;                   ///< number of ranks
    bool names_hosts = false;        ///< adds the host to lines of one rank
    Colours colours = Colours::off;  ///< colours of warnings, errors, and less important text
};

/// Returns `text` on one line, without terminal escapes and other control characters.
std::string plain_text(std::string_view text);

/// Formats lines: "2026-01-31T12:34:56.789Z [0-7]  warn  ...". One thread.
class LogText {
  public:
    /// Formats lines of one start, with columns that fit its ranks.
    explicit LogText(const LogStyle& style);

    /// Appends `mark` (for comparisons), `line` and a line feed to `out`.
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
