// SPDX-License-Identifier: Apache-2.0
// One rank's log, read piece by piece.
#pragma once

#include "logs/launcher_fold.hpp"
#include "logs/log_record.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// How a rank's log is read.
struct RankLogSettings {
    std::size_t piece_bytes = std::size_t{64} << 10;
    std::size_t longest_line = std::size_t{256} << 10;
    bool stays_open = true;  ///< else it is opened for each piece
};

/// The lines of a rank-NNNNN.jsonl, which may grow; with no_rank those of a launcher-HOST.jsonl.
class RankLog {
  public:
    /// Reads no line yet, but the log's first ones for facts().
    RankLog(fs::path path, int rank, const LogChoice& choice, const RankLogSettings& settings);

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
    std::uint64_t damaged() const { return damaged_; }

  private:
    std::size_t read_from(std::uint64_t offset, std::span<char> into);
    void read_facts();
    void seek(double since_s);
    bool fill();
    void leave_endless_line();
    std::optional<std::string_view> next_bytes();
    bool take(std::string_view bytes);
    bool take_words();
    bool take_launcher_line();
    bool is_wanted() const;

    fs::path path_;
    LogChoice choice_;
    RankLogSettings settings_;
    RankLogFacts facts_;
    UniqueFd fd_;
    LogRecord record_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0, end_ = 0;  // of what was read and not taken, in the buffer
    std::size_t searched_ = 0;         // up to here no line ends
    std::uint64_t offset_ = 0;         // in the file, of end_
    std::uint64_t line_at_ = 0;        // in the file, of the line that is skipped
    bool skips_line_ = false;          // until the end of one that is too long
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
