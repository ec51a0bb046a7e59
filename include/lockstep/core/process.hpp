// SPDX-License-Identifier: Apache-2.0
/// @file
/// Child processes by argument list, never through a shell, and what they say.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

namespace lockstep {

/// The streams of a child that go through pipes. none: no stream, the child writes where this
/// process does. apart: stdout and stderr, each through its own pipe. output: stdout and stderr
/// through one pipe. both: as output, and stdin. Without a pipe to its stdin a child reads nothing.
enum class ChildPipes { none, apart, output, both };

/// A started child and the pipes to it.
struct Child {
    pid_t pid = -1;   ///< -1: no child was started
    UniqueFd output;  ///< the child's stdout, and its stderr unless that is apart
    UniqueFd errors;  ///< the child's stderr, if it is apart
    UniqueFd input;   ///< the child's stdin
};

/// Starts argv[0], found on PATH, for what run_process() does not serve; `environment` is added to
/// this process's own. The child leads its own process group and dies with this process. It blocks
/// the `blocked` signals if they are given, else those of this thread. Signals of
/// hold_stop_signals() reach it. Errors: E610.
Child start_child(const std::vector<std::string>& argv,
                  const std::map<std::string, std::string>& environment,
                  ChildPipes pipes,
                  const sigset_t* blocked = nullptr);

/// Waits for the child's end and returns its wait status.
int reap_child(pid_t pid);

/// How a child ended, and its output.
struct ProcessResult {
    int exit_code = 0;   ///< 128 + signal when killed
    std::string output;  ///< stdout and stderr, in order
};

/// Runs argv[0] (found on PATH) and waits; `environment` is added to this process's own. The child
/// dies with this process. `meanwhile` is called at least ten times a second; an exception that it
/// throws ends the child. Errors: E610 if it cannot be started; E611 if it exceeds `timeout_s`.
ProcessResult run_process(const std::vector<std::string>& argv,
                          const std::map<std::string, std::string>& environment = {},
                          double timeout_s = 3600,
                          const std::function<void()>& meanwhile = {});

/// Replaces this process by argv[0] (found on PATH). Does not return. Errors: E610.
[[noreturn]] void become_process(const std::vector<std::string>& argv,
                                 const std::map<std::string, std::string>& environment = {});

/// Returns true if `path` is a file that may be executed.
bool is_program(const std::filesystem::path& path);

/// Returns the full path of `program` on PATH, or "".
std::string find_program(const std::string& program);

/// Returns the path of the running executable.
std::string this_executable();

/// Returns the path of a library that is installed with the running executable: in the lib folder
/// beside the executable's folder, or in that folder. Else returns the name alone, for the loader
/// to find.
std::string own_library(const std::string& name);

/// A child process and the pipes to it. Move-only; the destructor kills the child. Null state:
/// moved from.
class TalkingProcess {
  public:
    /// Starts argv[0] (found on PATH). Errors: E610.
    explicit TalkingProcess(const std::vector<std::string>& argv);

    /// Moves ownership of the child.
    TalkingProcess(TalkingProcess&&) noexcept = default;
    ~TalkingProcess();

    /// Writes a line to its stdin. Writing to a child that is gone is no error.
    void say(const std::string& line);

    /// Returns the next line of its stdout or stderr without line feed. Returns nothing if none
    /// comes before `deadline_s` (of now_s()) or the child has closed both.
    std::optional<std::string> hear(double deadline_s);

  private:
    std::optional<std::string> next_line();

    Child child_;
    std::string heard_;  ///< not yet given out
};

/// Waits until `fd` has bytes and reads what is there into the front of `out`. Returns the number
/// of bytes: 0 if the other end is closed, nothing if none came before `deadline_s` (of now_s()).
/// Signals do not end the wait.
std::optional<std::size_t> timed_read(int fd, std::span<std::byte> out, double deadline_s);

}  // namespace lockstep
