// SPDX-License-Identifier: Apache-2.0
/// @file
/// The logs of all ranks of one start as one: by the clock of rank 0, in little memory.
#pragma once

#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Where a line comes from.
enum class LogKind {
    said,      ///< the rank wrote it into its log
    error,     ///< the rank ends with it
    captured,  ///< something wrote it to the rank's stderr
    launcher,  ///< it came out of mpirun or srun, and no rank's log says so
};

/// LogLine::rank where the line is no rank's, but the launcher's.
inline constexpr int no_rank = -1;

/// A line of a rank's log. Its texts are views that hold until the log goes on; they may have any
/// bytes in them, escapes of terminals too.
struct LogLine {
    double time_s = 0;             ///< seconds since 1970 on rank 0's clock
    int rank = 0;                  ///< whose log it is in, or no_rank
    Level level = Level::info;     ///< how much it matters
    LogKind kind = LogKind::said;  ///< where it comes from
    bool is_for_all = false;       ///< said once, by rank 0 for all ranks
    std::string_view host;         ///< of the rank or launcher; "" in logs of older versions
    std::string_view text;         ///< of an error: what happened
    std::string_view alike;  ///< what other ranks say as well, each with its own figures; or ""
                             ///< of a launcher's line: what the rank's own log has of it
    std::string_view code, why, fix{};  ///< of an error
    std::vector<int> failed{};          ///< of an error that ranks agreed on: who met it
};

/// Which lines are wanted.
struct LogChoice {
    std::optional<std::vector<int>> ranks{};  ///< in order; nothing: all
    std::string node{};                       ///< of the ranks; "": all
    Level least = Level::debug;
    double since_s = -std::numeric_limits<double>::infinity();  ///< seconds since 1970
    bool with_launcher = false;  ///< those of launcher-HOST.jsonl as well
    std::uint64_t newest_bytes = std::numeric_limits<std::uint64_t>::max();  ///< of each log
};

/// What is known of a rank's log without reading all of it.
struct RankLogFacts {
    int rank = 0;
    std::string host{};  ///< "" if nothing was written yet, and in logs of older versions
    double clock_ahead_s = 0, clock_error_s = 0;  ///< ClockEvent
};

/// What rank logs are read with.
struct LogLimits {
    std::size_t buffer_bytes = std::size_t{48} << 20;   ///< of all ranks together
    std::size_t longest_line = std::size_t{256} << 10;  ///< longer ones are passed over
    std::size_t most_open = 0;  ///< files; 0: what this process may open, less a reserve
};

/// The ranks of a start whose logs lie in `folder`, and where. Errors: E201 if there is none.
std::vector<RankLogFacts> read_log_facts(const fs::path& folder);

/// Lines of the rank-NNNNN.jsonl files of a folder in order of time, with the launcher's where they
/// are wanted: its boxes and blocks as one line each, on the clock of a rank of its host. The lines
/// of one rank stay in their order, also where its clock was set back. A line that is not whole
/// yet, as it is while its rank writes or where the rank was killed, waits for its end; one that
/// makes no sense is passed over and counted. Files may grow and appear meanwhile. Beyond
/// `most_open` files each is opened anew for every piece. One thread.
class LogMerge {
  public:
    /// Errors: E201, E202, E402.
    LogMerge(const fs::path& folder, LogChoice choice, const LogLimits& limits = {});

    /// Null state: moved from.
    LogMerge(LogMerge&&) noexcept;
    ~LogMerge();

    /// The next line that is not later than `until_s`; nullptr if there is none (yet).
    const LogLine* next(double until_s = std::numeric_limits<double>::infinity());

    /// For starts that are over: goes on with what ranks left in rank-NNNNN.stderr and had no time
    /// to log, as of their last log line, and with a launcher's box that is not whole.
    void take_last_words();

    /// Looks for more lines of logs that had none left, and for new logs.
    void look_again();

    /// Lines so far that made no sense.
    std::uint64_t damaged() const;

  private:
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

/// An error that ranks met.
struct RankError {
    std::vector<int> ranks{};  ///< in order; never empty
    std::string host{};        ///< of the first of them; "" if its log does not tell
    std::string code{}, what{}, why{}, fix{};
    double time_s = 0;         ///< on rank 0's clock
    Blame blame = Blame::own;  ///< whose doing it is, by its code
};

/// The errors in a start's logs.
struct RankErrors {
    std::optional<RankError> first{};  ///< of a rank's own; where there is none, of those in doubt
    std::optional<RankError> told{};   ///< the first that tells of another rank's end
    std::vector<int> followers{};      ///< ranks, in order, whose only errors tell of others' ends
};

/// Reads `logs` to their end. `facts`: read_log_facts() of the same folder.
RankErrors read_errors(LogMerge& logs, std::span<const RankLogFacts> facts);

}  // namespace lockstep
