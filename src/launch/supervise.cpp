// SPDX-License-Identifier: Apache-2.0
// `train --np N` starts mpirun and stays above it, because mpirun alone does two things badly: it
// gives ranks a second to end after TERM, and leaves its files in /dev/shm when it is killed.
//
//     terminal, SLURM, a person          this process          mpirun             ranks
//     TERM, USR1, USR2, first Ctrl-C --> sigwait --- USR2 -->  passes it on  -->  save, end
//     second Ctrl-C                  --> sigwait --- KILL -->  gone
//     kill -9                        --> gone          the kernel kills mpirun, too
//
// mpirun has a process group of its own: Ctrl-C on the terminal must come to the supervisor alone,
// or ranks would get it twice, in two meanings.
//
// What must never happen:
// - A signal is lost between "has the child ended?" and "wait for a signal": they are blocked all
//   the time and taken by sigwait() only, SIGCHLD among them.
// - An end by a signal looks like an exit code of the run: it becomes E612, which says what killed
//   it.
// - Files stay in memory for ever. The folder's lock dies with its process, so the next launch
//   knows which folders nobody owns and removes these, and never one of a living job.
//
// Tested: launch/supervise_test.cpp; e2e/resume_test.cpp and cluster/life_test with whole runs.

#include "lockstep/launch/supervise.hpp"

#include "lockstep/core/child.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::string_view folder_prefix = "lockstep-launch-";

fs::path base_folder() {
    return ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
}

// The lock of a folder's owner goes with its process, whatever kills it.
UniqueFd lock_of(const fs::path& folder, int flags) {
    UniqueFd file(::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
    if (file && ::flock(file.value(), LOCK_EX | LOCK_NB) != 0) file.reset();
    return file;
}

bool is_abandoned(const fs::path& folder) {
    struct stat facts {};
    return folder.filename().string().starts_with(folder_prefix) &&
           ::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
           facts.st_uid == ::geteuid() && static_cast<bool>(lock_of(folder, 0));
}

void remove_abandoned() {
    std::error_code ignored;
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(base_folder(), ignored))
        if (is_abandoned(entry.path())) found.push_back(entry.path());
    for (const fs::path& folder : found) fs::remove_all(folder, ignored);
}

/// The signals that are passed on, blocked so that wait() sees them and nothing else does.
class WatchedSignals {
  public:
    WatchedSignals() {
        sigemptyset(&watched_);
        for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGCHLD})
            sigaddset(&watched_, signal);
        sigprocmask(SIG_BLOCK, &watched_, &before);
    }
    ~WatchedSignals() { sigprocmask(SIG_SETMASK, &before, nullptr); }
    WatchedSignals(const WatchedSignals&) = delete;
    WatchedSignals& operator=(const WatchedSignals&) = delete;

    int wait() const {
        int signal = 0;
        sigwait(&watched_, &signal);
        return signal;
    }

    sigset_t before;  ///< what was blocked

  private:
    sigset_t watched_;
};

Error killed(int signal) {
    return Error("E612",
                 fmt::format("the ranks were ended by signal {}", signal),
                 "mpirun or one of its ranks was killed; memory limits are a usual reason",
                 "the same command again goes on from the newest checkpoint");
}

int exit_code_of(int status, bool interrupted) {
    if (interrupted) return static_cast<int>(ExitCode::interrupted);
    if (WIFSIGNALED(status)) throw killed(WTERMSIG(status));
    const int code = WEXITSTATUS(status);
    if (code > 128 && code != static_cast<int>(ExitCode::interrupted)) throw killed(code - 128);
    return code;
}

}  // namespace

int supervise_ranks(LaunchRequest request) {
    const LaunchFolder folder;
    request.folder = folder.path();
    std::map<std::string, std::string> environment;
    if (::isatty(STDOUT_FILENO) == 1) environment[live_variable] = "1";
    return supervise(mpirun_line(request, Environment()), environment);
}

LaunchFolder::LaunchFolder() {
    remove_abandoned();
    std::string name = base_folder() / fmt::format("{}XXXXXX", folder_prefix);
    check(::mkdtemp(name.data()) != nullptr, [&] { return system_error("create", name, errno); });
    path_ = name;
    lock_ = lock_of(path_, O_CREAT);
}

LaunchFolder::~LaunchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

int supervise(const std::vector<std::string>& argv,
              const std::map<std::string, std::string>& environment) {
    const WatchedSignals signals;
    const pid_t child = start_child(argv, environment, ChildPipes::none, &signals.before).pid;
    int interrupts = 0, status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
        const int signal = signals.wait();
        if (signal == SIGCHLD) continue;
        if (signal == SIGINT) ++interrupts;
        ::kill(child, interrupts > 1 ? SIGKILL : SIGUSR2);
    }
    return exit_code_of(status, interrupts > 0);
}

}  // namespace lockstep
