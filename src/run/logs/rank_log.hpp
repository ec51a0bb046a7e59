// SPDX-License-Identifier: Apache-2.0
// One rank's log, read piece by piece: its events for programs, its lines for people.
#pragma once

#include "lockstep/run/events.hpp"
#include "lockstep/run/log_merge.hpp"

#include "logs/launcher_fold.hpp"
#include "logs/log_lines.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace lockstep {

/// A line that the rank wrote for people.
struct SaidEvent {
    static constexpr std::string_view name = "log";
    std::string text, alike;
    Level level = Level::info;
    bool is_for_all = false;
};

/// What one line of a rank's or launcher's log holds; monostate: what is not known here.
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
    double time_s = std::numeric_limits<double>::quiet_NaN();  ///< by its clock; NaN: it has none
    std::string host{};                                        ///< "" in logs of older versions
    LogEvent event{};
};

/// Nothing if `line` is no JSON.
std::optional<LogEntry> log_entry_in(std::string_view line);

/// What a line is to readers of merged logs.
enum class RecordFate {
    line,     ///< for people
    clock,    ///< ClockEvent
    other,    ///< for programs
    damaged,  ///< not a whole record
};

/// One record, used for line after line.
struct LogRecord {
    LogLine line{};      ///< its time is by the rank's own clock; its rank is the caller's
    ClockEvent clock{};  ///< with RecordFate::clock
    std::uint64_t stderr_end = 0;  ///< StderrEvent::end

    /// From `bytes` without line feed, which `line` may view.
    RecordFate read(std::string_view bytes);

  private:
    bool read_usual(std::string_view bytes);
    RecordFate read_any(std::string_view bytes);

    LogEntry entry_{};  // what `line` views where not the file's bytes
};

/// The lines of a rank-NNNNN.jsonl, which may grow; with no_rank those of a launcher-HOST.jsonl.
class RankLog {
  public:
    /// Reads no line yet, but the log's first ones for facts().
    RankLog(fs::path path, int rank, const LogChoice& choice, LineLimits limits);

    RankLog(const RankLog&) = delete;
    RankLog& operator=(const RankLog&) = delete;

    /// Goes to the next line that is wanted. False where there is none yet; another call may find
    /// one. Errors: those of open_for_reading() but E201; E402.
    bool advance();

    /// From now on advance() goes on, behind the log, with what is in the rank's stderr file and
    /// not in its log, or with what the launcher began to say.
    void take_last_words();

    /// The line that advance() went to, on rank 0's clock.
    const LogLine& line() const { return record_.line; }

    const RankLogFacts& facts() const { return facts_; }

    /// For a launcher, who has not measured its clock: by that of a rank of its host.
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
    LauncherLine launcher_line_;       // what `line()` views
    std::string words_;                // of its stderr
    std::optional<std::size_t> word_;  // the next of them, once they are asked for
    double last_s_ = -std::numeric_limits<double>::infinity();
    std::uint64_t damaged_ = 0;
};

/// Whether a launcher's log is called so.
bool is_launcher_file(const fs::path& path);

/// "rank-00003" + `extension`, as ranks call their files; nothing for another name.
std::optional<int> rank_of_file(const fs::path& path, std::string_view extension);

}  // namespace lockstep
