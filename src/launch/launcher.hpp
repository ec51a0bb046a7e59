// SPDX-License-Identifier: Apache-2.0
// What this process, machine and network allow, asked before mpirun, which says less or nothing;
// and the meaning of an end of a launch by the launcher itself, not by a rank. Then a launcher as a
// process: its state, its output, made readable, passed on and kept, and its guaranteed end.
#pragma once

#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/launch/host_probe.hpp"
#include "lockstep/launch/supervise.hpp"

#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/types.h>

namespace lockstep {

/// Returns the network in which this host and all `hosts` reach each other, as each of them tries
/// over ssh. Of several it is the one by which this host's routes lead to them. `own` are this
/// host's addresses. Nothing is tried if all are this host, or if OMPI_MCA_* choose interfaces.
/// Errors: E647 for a name that cannot be resolved, a host that does not answer, or if no network
/// connects them.
LaunchNetwork network_towards(std::span<const std::string> hosts,
                              const HostAddresses& own,
                              const Environment& environment);

/// Returns the arguments for mpirun.
std::vector<std::string> network_words(const LaunchNetwork& network);

/// Returns the arguments for the transport of messages: sockets and shared memory, unless hosts
/// share RDMA or the user's OMPI_MCA_pml says otherwise: then Open MPI takes its best.
std::vector<std::string> carrier_words(const LaunchNetwork& network,
                                       const Environment& environment);

/// Checks the number of ranks. Errors: E601 if `ranks` exceed the cores of this process.
void check_cores(int ranks);

/// Raises the soft limit of open files if `ranks` of this node need more. Errors: E693 if the hard
/// limit is too low, or if the limit of file sizes is below Open MPI's files.
void settle_limits(int ranks);

/// Progress of a launch's ranks when it ended; unknown: they leave no record of it.
enum class RanksStage { unknown, not_begun, begun };

/// Returns true if an exit code of mpirun can be that of ranks: mpirun passes theirs on, 128 +
/// signal for one that a signal ended. Its own codes are 1 and the low byte of its negative error
/// numbers.
bool is_exit_code_of_ranks(int code);

/// Returns the error for a code that is none of theirs: E697 unless ranks have begun, else E612
/// with `next_start`, the effect of the same command.
Error launcher_failed(int code, RanksStage stage, std::string next_start);

/// Returns the error for a launcher that `signal` ended, which is not the end of a rank. The same
/// codes.
Error launcher_crashed(int signal, RanksStage stage, std::string next_start);

/// The settings that users and sites give Open MPI: variables in the environment, and the lines of
/// the user's own files below `home`. "" if there are none.
struct MpiSettings {
    std::string variables;  ///< names, separated by blanks
    std::string lines;      ///< "a = b, c = d"
    std::string files;      ///< paths of the files, separated by blanks
};
MpiSettings mpi_settings(const Environment& environment, const std::filesystem::path& home);

/// Prepares this process for an mpirun as its child. Removes variables of other launches from the
/// environment, and sets HOME if neither a variable nor the password file has it. Errors: E697 for
/// a host name with which Open MPI 4 crashes.
void ready_for_mpirun();

/// A started launcher. One thread.
class LauncherProcess {
  public:
    explicit LauncherProcess(pid_t pid) : pid_(pid) {}

    /// Returns true if it has ended; does not wait.
    bool has_ended();

    /// Returns its wait status, once it has ended.
    int status() const { return status_; }

    /// Sends a signal, which arrives even if the process is stopped.
    void send(int signal) const;

    /// Returns true if a process that it started still lives; nothing if the system does not tell.
    std::optional<bool> has_living_children() const;

  private:
    pid_t pid_;
    int status_ = 0;
    bool has_ended_ = false;
};

/// During its lifetime, processes that lose their parent become children of this one (a child
/// subreaper); at its end the new ones are killed. Otherwise ranks that a killed launcher leaves in
/// their first moments would live on.
class OrphanWatch {
  public:
    OrphanWatch();
    ~OrphanWatch();
    OrphanWatch& operator=(OrphanWatch&&) = delete;

  private:
    std::vector<pid_t> before_;
    int subreaper_before_ = 0;
};

/// Returns true if `fd` has one of poll()'s `events` now.
bool is_ready(int fd, short events);

/// The read end of a launcher's stdout or stderr. Output is passed on to `target`, the same of this
/// process, in pieces that a pipe or terminal accepts at once, and dropped once nobody reads that:
/// a launcher crashes if its own stdout is closed. If `target` accepts no more, the launcher's pipe
/// fills up as if it led there directly. Never waits. Needs a process that ignores SIGPIPE. One
/// thread.
class PassedPipe {
  public:
    /// What is passed on in place of what has come.
    using Change = std::function<std::string(std::string_view)>;

    /// `pipe` may be null: there is no output.
    PassedPipe(
        UniqueFd pipe, int target, Change change = [](auto come) { return std::string(come); });

    /// Returns the argument for poll(): the events that move() handles.
    pollfd awaited() const;

    /// Reads what has come and passes on what has room.
    void move();

    /// Passes on `text`, too, if all that came before has been.
    void add(const std::function<std::string()>& text);

    /// Returns true if move() has work left.
    bool has_more() const;

    /// Returns errno of the first write to `target` that failed: EPIPE if nobody reads it any more,
    /// ENOSPC on a full disk. 0: none failed.
    int failure() const { return failure_; }

    /// Returns failure() once, then 0.
    int new_failure() { return std::exchange(is_told_, failure_ != 0) ? 0 : failure_; }

  private:
    UniqueFd pipe_;
    int target_;
    Change change_;
    std::string unsent_;  // read, and not passed on yet
    int failure_ = 0;
    bool is_told_ = false;
};

/// Filters a launcher's stderr. It removes the rules and empty lines of Open MPI's boxes, and boxes
/// and lines that only report an end that others explain. All else passes at once, even the begin
/// of a line.
class LauncherBoxes {
  public:
    /// Returns the text to show after `bytes` have come.
    std::string pass(std::string_view bytes);

    /// Returns the text held back, if nothing more comes for a while: a box without an end is no
    /// box.
    std::string rest();

    /// Returns "rank 3 on n2", once mpirun has reported how that rank ended; else "".
    const std::string& ended_rank() const { return ended_rank_; }

  private:
    void take(char c, std::string& shown);
    void end_line(std::string& shown);

    std::string line_;              // begin of a line that may belong to a box or be removed
    std::vector<std::string> box_;  // its lines so far, from its first rule on
    std::string ended_rank_;
    bool is_shown_ = false;  // the begin of the current line
};

struct KeptOutput {
    std::size_t head_bytes = std::size_t{1} << 20;
    std::size_t tail_bytes = std::size_t{256} << 10;  ///< newest bytes after the head
};

/// The read end of a launcher's stderr. Output is passed on to this process's own stderr. Each line
/// is kept as a record of RUN/logs/iN/launcher-HOST.jsonl, once that folder exists. It never waits.
/// One thread.
class LauncherOutput {
  public:
    /// `pipe` may be null: there is no output.
    LauncherOutput(UniqueFd pipe, LauncherLog log, const KeptOutput& limits = {});

    /// Writes the rest of the records.
    ~LauncherOutput();
    LauncherOutput& operator=(LauncherOutput&&) = delete;

    pollfd awaited() const { return pipe_.awaited(); }  ///< as of a PassedPipe
    void move() { pipe_.move(); }                       ///< as of a PassedPipe
    bool has_more() const { return pipe_.has_more(); }  ///< as of a PassedPipe

    /// Searches for the folder for records.
    void settle();

    /// Writes a line of our own to stderr, if that has room, and to the records.
    void note(const std::string& line);

    /// Returns LauncherBoxes::ended_rank().
    const std::string& ended_rank() const { return boxes_.ended_rank(); }

  private:
    std::string take(std::string_view come);
    void take_lines(std::string_view bytes);
    void keep(std::string_view line);
    void place(const fs::path& folder);
    void write_head();

    void (*pipe_signal_before_)(int);
    PassedPipe pipe_;
    UniqueFd file_;
    LauncherLog log_;
    KeptOutput limits_;
    LauncherBoxes boxes_;
    bool is_quiet_ = false;  // nothing has come since settle()
    std::string line_;       // begin of a line
    std::string head_;       // records without a folder
    std::size_t head_left_;
    std::deque<std::string> tail_;
    std::size_t tail_bytes_ = 0, left_out_ = 0;
};

}  // namespace lockstep
