// SPDX-License-Identifier: Apache-2.0
// Reads a run's files line by line, which may be growing, a pipe, endless, or one line of
// gigabytes; of a rank's log its events for programs, and its lines for people.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/log_merge.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

/// Treatment of a last line without an end, which its writer may still be writing.
enum class UnendedLine { is_given, is_awaited };

struct LineLimits {
    std::size_t piece_bytes = std::size_t{64} << 10;
    std::size_t longest_line = std::size_t{1} << 20;  ///< longer lines are skipped
    bool stays_open = true;                           ///< else it is opened again for each piece
    UnendedLine last = UnendedLine::is_given;
};

/// A file from which lines are read. A missing file has no lines (yet).
class LogLines {
  public:
    explicit LogLines(fs::path path, const LineLimits& limits = {});

    /// Returns the present size of the file. Errors: those of open_for_reading() but E201.
    std::int64_t size();

    /// Selects the lines that begin at or after byte `from` and before byte `to`. A line that began
    /// before `from` is left out.
    void choose(std::int64_t from, std::int64_t to = std::numeric_limits<std::int64_t>::max());

    /// Selects all lines that begin in the last `bytes`.
    void choose_last(std::int64_t bytes) { choose(size() - bytes); }

    /// Returns the next line, without its end; valid until the next call. After nothing, another
    /// call may find more. Errors: those of open_for_reading() but E201; E402.
    std::optional<std::string_view> next();

    /// Fills `into` from byte `offset`; returns the number of bytes. Errors: as next().
    std::size_t read_from(std::int64_t offset, std::span<char> into);

    const fs::path& path() const { return path_; }
    /// Returns the number of lines that are too long.
    std::uint64_t passed_over() const { return passed_over_; }

  private:
    UniqueFd open() const;
    bool fill();
    void leave_endless_line();
    std::optional<std::string_view> unended();

    fs::path path_;
    LineLimits limits_;
    UniqueFd fd_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0, end_ = 0;  // unread part of the buffer
    std::size_t searched_ = 0;         // no line ends before this place
    std::int64_t offset_ = 0;          // file offset of end_
    std::int64_t to_ = std::numeric_limits<std::int64_t>::max();
    std::int64_t line_at_ = 0;  // file offset of the skipped line
    bool skips_line_ = false;   // skips a line that is too long, or began too early
    std::uint64_t passed_over_ = 0;
};

/// A line, with the texts of LogLine.
struct LauncherLine {
    double time_s = 0;
    Level level = Level::warn;
    std::string text{}, alike{}, code{}, why{};
};

/// Takes a launcher's lines one by one. A box of Open MPI becomes one line, and so does a rank's
/// error with its reasons; empty lines are dropped. Lines that only report an end that others
/// explain have level info, unknown ones warning.
class LauncherFold {
  public:
    void add(double time_s, std::string_view text);

    /// Emits a line or box that is incomplete.
    void finish();

    /// Returns the next finished line.
    std::optional<LauncherLine> take();

  private:
    void close_box();
    void close_error();

    std::deque<LauncherLine> ready_;
    std::vector<std::string> box_;  // its lines so far, from its first rule on
    double box_s_ = 0;
    std::optional<LauncherLine> error_;
};

/// A line that the rank wrote for people.
struct SaidEvent {
    static constexpr std::string_view name = "log";
    std::string text, alike;
    Level level = Level::info;
    bool is_for_all = false;
};

/// The event in one line of a rank's or launcher's log; monostate: unknown here.
using LogEvent = std::variant<std::monostate,
                              SaidEvent,
                              ClockEvent,
                              PlaceEvent,
                              FirstStepEvent,
                              StepsEvent,
                              EvaluationEvent,
                              ErrorEvent,
                              StderrEvent,
                              LauncherEvent>;

/// One line of a rank's or launcher's log.
struct LogEntry {
    double time_s =
        std::numeric_limits<double>::quiet_NaN();  ///< time by its clock; NaN: it has none
    std::string host{};                            ///< "" in logs of older versions
    LogEvent event{};
};

/// Returns nothing if `line` is no JSON.
std::optional<LogEntry> log_entry_in(std::string_view line);

/// The use of a record in merged logs.
enum class RecordFate {
    line,     ///< shown to people
    clock,    ///< ClockEvent
    other,    ///< only for programs
    damaged,  ///< incomplete or invalid
};

/// One record; the object is reused for each line.
struct LogRecord {
    LogLine line{};      ///< its time is by the rank's own clock; the caller sets its rank
    ClockEvent clock{};  ///< set with RecordFate::clock
    std::uint64_t stderr_end = 0;  ///< StderrEvent::end

    /// Reads a record from `bytes` without line feed; `line` may view them.
    RecordFate read(std::string_view bytes);

  private:
    bool read_usual(std::string_view bytes);
    RecordFate read_any(std::string_view bytes);

    LogEntry entry_{};  // texts that `line` views, if they are not in the file's bytes
};

/// The lines of a rank-NNNNN.jsonl, which may grow; with no_rank those of a launcher-HOST.jsonl.
class RankLog {
  public:
    /// Reads only the log's first lines, for facts().
    RankLog(fs::path path, int rank, const LogChoice& choice, LineLimits limits);

    RankLog& operator=(RankLog&&) = delete;

    /// Goes to the next selected line. Returns false if there is none yet; another call may find
    /// one. Errors: those of open_for_reading() but E201; E402.
    bool advance();

    /// From now on advance() continues after the log with the part of the rank's stderr file that
    /// is not in its log, or with an incomplete launcher's line.
    void take_last_words();

    /// Returns the current line, on rank 0's clock.
    const LogLine& line() const { return record_.line; }

    const RankLogFacts& facts() const { return facts_; }

    /// Sets a launcher's clock, which it has not measured, to that of a rank on its host.
    void set_clock(double ahead_s) { facts_.clock_ahead_s = ahead_s; }
    std::uint64_t damaged() const { return damaged_ + lines_.passed_over(); }

  private:
    void read_facts();
    void seek(double since_s);
    bool take(std::string_view bytes);
    bool take_words();
    bool take_launcher_line();
    bool is_wanted() const;

    LogLines lines_;
    LogChoice choice_;
    RankLogFacts facts_;
    LogRecord record_;
    bool has_begun_ = false;
    LauncherFold launcher_;
    LauncherLine launcher_line_;       // texts that `line()` views
    std::string words_;                // text of its stderr
    std::optional<std::size_t> word_;  // place of the next of them, once they are requested
    double last_s_ = -std::numeric_limits<double>::infinity();
    std::uint64_t damaged_ = 0;
};

/// Returns true for the name of a launcher's log.
bool is_launcher_file(const fs::path& path);

/// Returns the rank of a file named "rank-00003" + `extension`; nothing for other names.
std::optional<int> rank_of_file(const fs::path& path, std::string_view extension);

}  // namespace lockstep
