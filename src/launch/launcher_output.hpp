// SPDX-License-Identifier: Apache-2.0
// What a launcher writes to its stderr: made readable, passed on and kept.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/launch/supervise.hpp"

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>

namespace lockstep {

/// A launcher's stderr without the rules and empty lines of Open MPI's boxes, and without those
/// boxes and lines that only tell of an end that others explain. All else passes as it comes, a
/// beginning of a line at once.
class LauncherBoxes {
  public:
    /// What is to be shown once `bytes` have come.
    std::string pass(std::string_view bytes);

    /// What is kept back, if nothing more comes for a while: a box that has no end is none.
    std::string rest();

    /// "rank 3 on n2", once mpirun has said how that rank ended; else "".
    const std::string& ended_rank() const { return ended_rank_; }

  private:
    void take(char c, std::string& shown);
    void end_line(std::string& shown);

    std::string line_;              // a beginning that may be a box's or noise
    std::vector<std::string> box_;  // its lines so far, from its first rule on
    std::string ended_rank_;
    bool is_shown_ = false;  // the beginning of the line that comes now
};

/// How much of it is kept.
struct KeptOutput {
    std::size_t head_bytes = std::size_t{1} << 20;
    std::size_t tail_bytes = std::size_t{256} << 10;  ///< behind the head, of what came last
};

/// The read end of a launcher's stderr. What comes is passed on to this process's own stderr, and
/// each line kept as a record of RUN/logs/iN/launcher-HOST.jsonl, once that has a place. It never
/// waits for anybody. One thread.
class LauncherOutput {
  public:
    /// `pipe` may be null: nothing comes.
    LauncherOutput(UniqueFd pipe, LauncherLog log, const KeptOutput& limits = {});

    /// Writes the rest of the records.
    ~LauncherOutput();
    LauncherOutput(const LauncherOutput&) = delete;
    LauncherOutput& operator=(const LauncherOutput&) = delete;

    /// For poll(): what move() can do something about.
    pollfd awaited() const;

    /// Takes what has come and passes on what has room.
    void move();

    /// Whether there is something that move() has not done yet.
    bool has_more() const;

    /// Looks for a place for records.
    void settle();

    /// A line of our own: to stderr, if that has room, and among the records.
    void note(const std::string& line);

    /// As LauncherBoxes has it.
    const std::string& ended_rank() const { return boxes_.ended_rank(); }

  private:
    void take_lines(std::string_view bytes);
    void keep(std::string_view line);
    void place(const fs::path& folder);
    void write_head();

    UniqueFd pipe_, file_;
    LauncherLog log_;
    KeptOutput limits_;
    LauncherBoxes boxes_;
    bool is_quiet_ = false;  // nothing has come since settle()
    std::string unsent_;     // taken, and not passed on yet
    std::string line_;       // the beginning of one
    std::string head_;       // records without a place
    std::size_t head_left_;
    std::deque<std::string> tail_;
    std::size_t tail_bytes_ = 0, left_out_ = 0;
    void (*pipe_signal_before_)(int);
};

}  // namespace lockstep
