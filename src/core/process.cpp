// SPDX-License-Identifier: Apache-2.0
// Child processes, their words, and the environment that they get.
#include "lockstep/core/process.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/signals.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
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
    check(!path.empty(),
          "E610",
          fmt::format("cannot start '{}'", program),
          "it is not on PATH",
          program == "mpirun" ? "install Open MPI, or load its module" : "install it");
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

constexpr double pace_s = 0.1;

// Reads until the child closes its output or the deadline passes. Returns whether it closed.
bool drain(int fd, double deadline_s, std::string& output, const std::function<void()>& meanwhile) {
    std::array<char, 1 << 16> buffer;
    while (now_s() <= deadline_s) {
        if (meanwhile) meanwhile();
        const double pause_s = meanwhile ? std::min(deadline_s, now_s() + pace_s) : deadline_s;
        const auto got = timed_read(fd, std::as_writable_bytes(std::span(buffer)), pause_s);
        if (!got) continue;
        if (*got == 0) return true;
        output.append(buffer.data(), *got);
    }
    return false;
}

// Exit code, or nothing if the child still runs at the deadline: it may have closed its output
// long before it ends.
std::optional<int> wait_for(pid_t pid, double deadline_s) {
    for (useconds_t pause = 200;; pause = std::min<useconds_t>(2 * pause, 20'000)) {
        int status = 0;
        const pid_t ended = ::waitpid(pid, &status, WNOHANG);
        if (ended == pid) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (now_s() > deadline_s) return std::nullopt;
        ::usleep(pause);
    }
}

// Kills the child's whole process group and waits for its end.
int end_child(pid_t pid) {
    if (::kill(-pid, SIGKILL) != 0) ::kill(pid, SIGKILL);  // it leads no group yet
    reap_child(pid);
    return 128 + SIGKILL;
}

/// Writing to a child that is gone must not end this process.
class NoPipeSignal {
  public:
    NoPipeSignal() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
    ~NoPipeSignal() { std::signal(SIGPIPE, before_); }
    NoPipeSignal& operator=(NoPipeSignal&&) = delete;

  private:
    void (*before_)(int);
};

bool is_control(char letter) {
    return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F;
}

/// "$'...'", which bash, zsh and ksh know: no terminal sees the control characters.
std::string escaped(std::string_view text) {
    std::string word = "$'";
    for (const char letter : text) {
        if (letter == '\'' || letter == '\\') word += '\\';
        if (is_control(letter))
            word += fmt::format("\\{:03o}", static_cast<unsigned char>(letter));
        else
            word += letter;
    }
    return word + "'";
}

}  // namespace

std::string shell_word(std::string_view text) {
    constexpr std::string_view plain = "/._-=+:@%,";
    const bool needs_none = !text.empty() && std::ranges::all_of(text, [&](unsigned char letter) {
        return std::isalnum(letter) != 0 || plain.find(static_cast<char>(letter)) != plain.npos;
    });
    if (needs_none) return std::string(text);
    if (std::ranges::any_of(text, is_control)) return escaped(text);
    std::string word = "'";
    for (const char letter : text) word += letter == '\'' ? "'\\''" : std::string(1, letter);
    return word + "'";
}

std::string shell_text(const std::vector<std::string>& argv) {
    std::string line;
    for (const std::string& word : argv) line += (line.empty() ? "" : " ") + shell_word(word);
    return line;
}

std::optional<std::string> Environment::text(const std::string& name) const {
    std::optional<std::string> value;
    if (fixed_) {
        if (const auto found = fixed_->find(name); found != fixed_->end()) value = found->second;
    } else if (const char* found = std::getenv(name.c_str())) {
        value = found;
    }
    readings_[name] = {value.value_or(""), value.has_value()};
    return value;
}

std::optional<std::int64_t> Environment::integer(const std::string& name) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto number = parse_integer(*value);
    check(number.has_value(),
          "E113",
          fmt::format("{} is '{}' (from environment)", name, *value),
          "it must be a whole number",
          fmt::format("unset {} or set it to a whole number", name));
    return number;
}

std::vector<std::string> Environment::names_with_prefix(const std::string& prefix) const {
    std::vector<std::string> names;
    if (fixed_) {
        for (const auto& [name, value] : *fixed_)
            if (name.starts_with(prefix)) names.push_back(name);
        return names;
    }
    for (char** entry = environ; entry && *entry; ++entry) {
        const std::string text(*entry, std::strcspn(*entry, "="));
        if (text.starts_with(prefix)) names.push_back(text);
    }
    return names;
}

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

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

void become_process(const std::vector<std::string>& argv,
                    const std::map<std::string, std::string>& environment) {
    const std::string path = program_or_error(argv.at(0));
    const auto variables = environment_with(environment);
    ::execve(path.c_str(), pointers(argv).data(), pointers(variables).data());
    throw Error("E610", fmt::format("cannot start '{}'", argv[0]), std::strerror(errno));
}

ProcessResult run_process(const std::vector<std::string>& argv,
                          const std::map<std::string, std::string>& environment,
                          double timeout_s,
                          const std::function<void()>& meanwhile) {
    const Child child = start_child(argv, environment, ChildPipes::output);
    ProcessResult result;
    const double deadline_s = now_s() + timeout_s;
    bool closed = false;
    try {
        closed = drain(child.output.value(), deadline_s, result.output, meanwhile);
    } catch (...) {
        end_child(child.pid);
        throw;
    }
    const auto exit_code = closed ? wait_for(child.pid, deadline_s) : std::nullopt;
    result.exit_code = exit_code ? *exit_code : end_child(child.pid);
    check(exit_code.has_value(),
          "E611",
          fmt::format("'{}' took longer than {}", argv[0], duration_text(timeout_s)),
          "it was ended",
          "check its output, or allow more time");
    return result;
}

bool is_program(const fs::path& path) {
    return fs::is_regular_file(status_of(path)) && ::access(path.c_str(), X_OK) == 0;
}

std::string find_program(const std::string& program) {
    if (program.find('/') != program.npos) return is_program(program) ? program : "";
    const char* variable = std::getenv("PATH");
    std::string_view rest = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
    while (!rest.empty()) {
        const std::string_view folder = rest.substr(0, rest.find(':'));
        rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
        const std::string candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, program);
        if (is_program(candidate)) return candidate;
    }
    return "";
}

std::string this_executable() {
    return fs::read_symlink("/proc/self/exe");
}

std::string own_library(const std::string& name) {
    const fs::path program = fs::path(this_executable()).parent_path();
    for (const fs::path& folder : {program / "../lib", program})
        if (fs::exists(status_of(folder / name))) return folder / name;
    return name;
}

std::optional<std::size_t> timed_read(int fd, std::span<std::byte> out, double deadline_s) {
    constexpr double longest_s = 3600;  // poll() counts milliseconds in an int
    while (true) {
        const double left_s = std::min(deadline_s - now_s(), longest_s);
        if (left_s <= 0) return {};
        pollfd waiting{fd, POLLIN, 0};
        const int ready = ::poll(&waiting, 1, static_cast<int>(left_s * 1e3) + 1);
        if (ready == 0) continue;
        const ssize_t got = ready < 0 ? ready : ::read(fd, out.data(), out.size());
        if (got >= 0) return static_cast<std::size_t>(got);
        if (errno != EINTR) return 0;
    }
}

TalkingProcess::TalkingProcess(const std::vector<std::string>& argv)
    : child_(start_child(argv, {}, ChildPipes::both)) {}

TalkingProcess::~TalkingProcess() {
    if (child_.output) end_child(child_.pid);
}

std::optional<std::string> TalkingProcess::next_line() {
    const auto end = heard_.find('\n');
    if (end == heard_.npos) return {};
    std::string line = heard_.substr(0, end);
    heard_.erase(0, end + 1);
    if (line.ends_with('\r')) line.pop_back();  // ssh's own words end so
    return line;
}

void TalkingProcess::say(const std::string& line) {
    const NoPipeSignal quiet;
    try_write_all(child_.input.value(), bytes_of(line + "\n"));
}

std::optional<std::string> TalkingProcess::hear(double deadline_s) {
    std::array<char, 4096> buffer;
    while (true) {
        if (auto line = next_line()) return line;
        const auto got = timed_read(
            child_.output.value(), std::as_writable_bytes(std::span(buffer)), deadline_s);
        if (got.value_or(0) == 0) return {};
        heard_.append(buffer.data(), *got);
    }
}

}  // namespace lockstep
