// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/child.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/signals.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
    std::vector<char*> list;
    for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
    list.push_back(nullptr);
    return list;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& extra) {
    std::vector<std::string> list;
    for (char** entry = environ; *entry; ++entry)
        if (!extra.contains(std::string(*entry, std::strcspn(*entry, "=")))) list.push_back(*entry);
    for (const auto& [name, value] : extra) list.push_back(name + "=" + value);
    return list;
}

std::string program_or_error(const std::string& program) {
    const std::string path = find_program(program);
    check(!path.empty(), [&] {
        return Error("E610",
                     fmt::format("cannot start '{}'", program),
                     "it is not on PATH",
                     program == "mpirun" ? "install Open MPI, or load its module" : "install it");
    });
    return path;
}

struct Pipe {
    UniqueFd read_end, write_end;
};

Pipe open_pipe() {
    std::array<int, 2> ends{};
    check(::pipe2(ends.data(), O_CLOEXEC) == 0,
          [] { return system_error("open", "a pipe", errno); });
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

Child start_child(const std::vector<std::string>& argv,
                  const std::map<std::string, std::string>& environment,
                  ChildPipes pipes,
                  const sigset_t* blocked) {
    const std::string path = program_or_error(argv.at(0));
    const auto variables = environment_with(environment);
    const auto argument_list = pointers(argv);
    const auto variable_list = pointers(variables);
    Pipe output, errors, spoken;
    if (pipes != ChildPipes::none) output = open_pipe();
    if (pipes == ChildPipes::apart) errors = open_pipe();
    if (pipes == ChildPipes::both) spoken = open_pipe();
    const int parent = ::getpid();
    const pid_t pid = ::fork();
    check(pid >= 0, [] { return system_error("start", "a process", errno); });
    if (pid == 0) {
        ::setpgid(0, 0);
        if (blocked) ::sigprocmask(SIG_SETMASK, blocked, nullptr);
        release_stop_signals();
        die_with_parent(parent);
        ::dup2(
            spoken.read_end ? spoken.read_end.value() : ::open("/dev/null", O_RDONLY | O_CLOEXEC),
            STDIN_FILENO);
        const UniqueFd& for_errors = errors.write_end ? errors.write_end : output.write_end;
        if (output.write_end) ::dup2(output.write_end.value(), STDOUT_FILENO);
        if (for_errors) ::dup2(for_errors.value(), STDERR_FILENO);
        ::execve(path.c_str(), argument_list.data(), variable_list.data());
        ::_exit(127);
    }
    return {
        pid, std::move(output.read_end), std::move(errors.read_end), std::move(spoken.write_end)};
}

int reap_child(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

int end_child(pid_t pid) {
    if (::kill(-pid, SIGKILL) != 0) ::kill(pid, SIGKILL);  // it leads no group yet
    reap_child(pid);
    return 128 + SIGKILL;
}

void become_process(const std::vector<std::string>& argv,
                    const std::map<std::string, std::string>& environment) {
    const std::string path = program_or_error(argv.at(0));
    const auto variables = environment_with(environment);
    ::execve(path.c_str(), pointers(argv).data(), pointers(variables).data());
    throw Error("E610", fmt::format("cannot start '{}'", argv[0]), std::strerror(errno));
}

}  // namespace lockstep
