// SPDX-License-Identifier: Apache-2.0
// libhdf5 crashes or loops on damaged or malicious files, and a job of many nodes must not end
// because of one file. So a child reads untrusted files, and answers over a socket:
//
//     this process                     lockstep-h5probe (sandbox_server.cpp)
//     ask(path, data sets)  --frame->  limits itself, opens, lists chunks or reads rows
//     answer(), deadline    <-frame--  facts, rows, or "refused" with a reason
//                           <--EOF---  dead: its exit status says of what
//
// The child is not fully confined: it is a process of the same user. It has limits on memory and
// CPU time, dies with its parent, and its answers are parsed like the file itself.
//
// What must never happen:
// - This process waits for ever: each answer has a deadline by the clock (the file system may
//   hang), and the child has one by CPU time (a loop).
// - An answer is believed. Memory grows with what has come, not with what is announced; facts go
//   through facts_from(), which checks them against the file's size.
// - fork(): this process may have MPI, pinned memory and threads. posix_spawn runs no code of ours
//   in between. The child gets the socket as its standard input and the signals' default ways.
// - A child is left behind: end() kills and reaps, also on each path that throws.
//
// Tested: data/hdf5/sandbox_test.cpp (crashes, hangs, nonsense, no child left), hostile_test.cpp
// and soak/hostile (files changed at random).

#include "sandbox.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"

#include "h5.hpp"
#include "shard_probe.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr const char* program_name = "lockstep-h5probe";

Error unusable(const std::string& what, const std::string& why) {
    return Error("E233",
                 what,
                 why,
                 fmt::format("install it in the program's folder, or set LOCKSTEP_H5PROBE=/path/{}",
                             program_name));
}

Error crashed(const fs::path& path, const std::string& how) {
    return Error("E231",
                 fmt::format("the HDF5 library crashed on '{}'", path.string()),
                 fmt::format("{} while it read the file; this job is not affected", how),
                 "the file is damaged or malicious: restore it from its source");
}

// The child may have less than its own limit where this process may.
Error out_of_memory(const fs::path& path) {
    rlimit addresses{};
    ::getrlimit(RLIMIT_AS, &addresses);
    if (addresses.rlim_max < most_child_addresses)
        return Error(
            "E225",
            fmt::format(
                "the system refuses '{}' the memory to read '{}'", program_name, path.string()),
            fmt::format("'ulimit -v' allows it {} of addresses", bytes_text(addresses.rlim_max)),
            "raise the limit: ulimit -v unlimited");
    return Error("E231",
                 fmt::format("the HDF5 library ran out of memory on '{}'", path.string()),
                 fmt::format("its limit is {} of addresses", bytes_text(most_child_addresses)),
                 "the file has chunks of gigabytes, or is malicious");
}

Error took_too_long(const fs::path& path) {
    return Error("E232",
                 fmt::format("the HDF5 library took too long over '{}'", path.string()),
                 "the file causes an endless loop, or its file system does not answer",
                 "restore the file from its source, or check the file system");
}

// Only the library knows what it reads: a file's version is looked at where it did not.
Error unreadable_file(const fs::path& path, const std::string& reason) {
    const std::string ours = fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    const std::string what = fmt::format("cannot read '{}'", path.string());
    const std::optional<unsigned> newer = newer_superblock(path);
    if (!newer)
        return Error("E205",
                     what,
                     reason,
                     fmt::format("copy it again from its source; if others can read it, it was "
                                 "written by a newer HDF5 than {}: write it with libver='earliest'",
                                 ours));
    return Error("E205",
                 what,
                 fmt::format("its superblock has version {}, which this program's HDF5 {} does not "
                             "know: it was written by a newer one, or is damaged ({})",
                             *newer,
                             ours,
                             reason),
                 "write the file again with libver='earliest' in the program that made it, or "
                 "build Lockstep with a newer HDF5");
}

// Starts `program` with one end of a pair of sockets as its standard input, nothing else.
class Spawning {
  public:
    Spawning(int socket) {
        ::posix_spawn_file_actions_init(&actions_);
        ::posix_spawnattr_init(&attributes_);
        ::posix_spawn_file_actions_adddup2(&actions_, socket, STDIN_FILENO);
        for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
            ::posix_spawn_file_actions_addopen(&actions_, fd, "/dev/null", O_WRONLY, 0);
        // A job's own way to treat signals is none of the helper's business.
        sigset_t none, all;
        ::sigemptyset(&none);
        ::sigfillset(&all);
        ::posix_spawnattr_setsigmask(&attributes_, &none);
        ::posix_spawnattr_setsigdefault(&attributes_, &all);
        ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    ~Spawning() {
        ::posix_spawn_file_actions_destroy(&actions_);
        ::posix_spawnattr_destroy(&attributes_);
    }
    Spawning& operator=(Spawning&&) = delete;

    pid_t start(const fs::path& program) {
        const std::array<char*, 2> words{const_cast<char*>(program_name), nullptr};
        pid_t child = -1;
        const int failed =
            ::posix_spawn(&child, program.c_str(), &actions_, &attributes_, words.data(), environ);
        if (failed == EAGAIN || failed == ENOMEM)  // too many processes or too little memory: E225
            throw std::system_error(failed, std::generic_category());
        check(failed == 0, [&] {
            return unusable(fmt::format("cannot start '{}'", program.string()),
                            std::strerror(failed));
        });
        return child;
    }

  private:
    posix_spawn_file_actions_t actions_{};
    posix_spawnattr_t attributes_{};
};

double gib(std::uint64_t bytes) {
    return static_cast<double>(bytes) / (1u << 30);
}

std::string text_of(std::span<const std::byte> bytes) {
    return printable(std::string(reinterpret_cast<const char*>(bytes.data()),
                                 std::min<std::size_t>(bytes.size(), 1000)));
}

// The helper program: LOCKSTEP_H5PROBE, beside this program, or on PATH.
fs::path find_h5probe() {
    if (const char* named = std::getenv("LOCKSTEP_H5PROBE"); named && *named) {
        check(is_program(named), [&] {
            return unusable(fmt::format("LOCKSTEP_H5PROBE is '{}'", named), "that is no program");
        });
        return named;
    }
    const fs::path beside = fs::path(this_executable()).replace_filename(program_name);
    if (is_program(beside)) return beside;
    const std::string found = find_program(program_name);
    check(!found.empty(), [&] {
        return unusable(fmt::format("the helper '{}' is missing", program_name),
                        fmt::format("it is neither in the program's folder ('{}') nor on PATH",
                                    beside.string()));
    });
    return found;
}

}  // namespace

void Sandbox::start() {
    if (child_ > 0) return;
    std::array<int, 2> ends{};
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0,
          [] { return system_error("open", "a pair of sockets", errno); });
    socket_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    child_ = Spawning(theirs.value()).start(find_h5probe());
}

// Ends the child, if it still runs, and returns its wait status.
int Sandbox::end() {
    if (child_ <= 0) return 0;
    socket_.reset();
    ::kill(child_, SIGKILL);
    return reap_child(std::exchange(child_, -1));
}

// Gives the child a moment to die by itself: how it died says what happened.
int Sandbox::wait_or_end() {
    for (int i = 0; i < 1000; ++i) {
        int status = 0;
        if (::waitpid(child_, &status, WNOHANG) != 0) {
            child_ = -1;
            socket_.reset();
            return status;
        }
        ::usleep(1000);
    }
    return end();
}

// The child closed its end: it is dying or dead of what it was asked.
void Sandbox::fail() {
    const int status = wait_or_end();
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) throw took_too_long(asked_.path);
    if (WIFSIGNALED(status))
        throw crashed(
            asked_.path,
            fmt::format(
                "it died of signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))));
    if (WEXITSTATUS(status) == exit_out_of_memory) throw out_of_memory(asked_.path);
    if (WEXITSTATUS(status) != 0)
        throw crashed(asked_.path, fmt::format("it ended with code {}", WEXITSTATUS(status)));
    throw unusable(
        fmt::format("'{}' gave no answer about '{}'", program_name, asked_.path.string()),
        "it ended without one");
}

void Sandbox::fill(std::span<std::byte> out) {
    while (!out.empty()) {
        const auto got = timed_read(socket_.value(), out, deadline_s_);
        if (!got) {
            end();
            throw took_too_long(asked_.path);
        }
        if (*got == 0) fail();
        out = out.subspan(*got);
    }
}

Error Sandbox::nonsense(const std::string& why) {
    end();
    return unusable(
        fmt::format("'{}' answered nonsense about '{}'", program_name, asked_.path.string()), why);
}

// What `parse` makes of an answer.
template <class Parse>
auto Sandbox::believed(const Parse& parse) {
    try {
        return parse();
    } catch (const Error&) {
        throw nonsense("its answer does not make sense");
    }
}

Error Sandbox::refusal(const std::string& reason) const {
    const bool is_of_rows = asked_kind_ == FrameKind::read || asked_kind_ == FrameKind::lists;
    if (!is_of_rows) return unreadable_file(asked_.path, reason);
    return Error("E213",
                 fmt::format("cannot read '{}:{}'", asked_.path.string(), asked_.datasets[0]),
                 reason,
                 "if a filter is missing, name the folder of its plug-in in $HDF5_PLUGIN_PATH; "
                 "otherwise copy the file again from its source");
}

Frame Sandbox::receive_head(double wall_s) {
    deadline_s_ = now_s() + wall_s;
    Frame frame;
    fill(std::as_writable_bytes(std::span(&frame, 1)));
    if (frame.magic != Frame::frame_magic || frame.bytes > most_frame_bytes)
        throw nonsense("it is of another version, or the file took it over");
    if (frame.kind == FrameKind::refused) throw refusal(text_of(receive_body(frame)));
    if (frame.kind != asked_kind_) throw nonsense("its answer is of no known kind");
    return frame;
}

std::vector<std::byte> Sandbox::receive_body(const Frame& frame) {
    // Memory grows with what arrives, not with what is announced.
    std::vector<std::byte> bytes;
    while (bytes.size() < frame.bytes) {
        const std::size_t before = bytes.size();
        bytes.resize(
            std::min<std::uint64_t>(frame.bytes, std::max<std::size_t>(2 * before, 1 << 20)));
        fill(std::span(bytes).subspan(before));
    }
    return bytes;
}

void Sandbox::send(FrameKind kind,
                   const FileRequest& about,
                   std::span<const std::byte> request,
                   double more_cpu_s) {
    start();
    asked_ = about;
    asked_kind_ = kind;
    file_bytes_ = fs::file_size(about.path);
    const double cpu_s = limits_.cpu_s + limits_.cpu_s_per_gib * gib(file_bytes_) + more_cpu_s;
    const Frame frame{.kind = kind,
                      .bytes = request.size(),
                      .cpu_s = static_cast<std::uint64_t>(std::max(1.0, cpu_s))};
    // If the child is dead, receiving finds out.
    send_all(socket_.value(), std::as_bytes(std::span(&frame, 1)));
    send_all(socket_.value(), request);
}

FileFacts Sandbox::look(const FileRequest& request) {
    ask(request);
    return answer();
}

FileRequest Sandbox::list(const fs::path& path) {
    static_cast<void>(open_for_reading(path));
    const FileRequest request{path, {}};
    send(FrameKind::list, request, to_bytes(request));
    const std::vector<std::byte> bytes = receive();
    return believed([&] { return request_from(bytes); });
}

void Sandbox::ask(const FileRequest& request) {
    static_cast<void>(open_for_reading(request.path));
    send(FrameKind::look, request, to_bytes(request));
}

FileFacts Sandbox::answer() {
    const std::vector<std::byte> bytes = receive();
    return believed([&] { return facts_from(bytes, asked_.datasets.size(), file_bytes_); });
}

void Sandbox::read(const RowsRequest& request, std::span<std::byte> out, double chunks) {
    const double size = gib(out.size());
    send(FrameKind::read,
         {request.path, {request.dataset}},
         to_bytes(request),
         limits_.cpu_s_per_gib_of_rows * size + limits_.cpu_s_per_chunk * chunks);
    const Frame frame = receive_head(limits_.wall_s + limits_.wall_s_per_gib_of_rows * size);
    if (frame.bytes != out.size()) throw nonsense("these are not the rows that were asked for");
    fill(out);
}

Lists Sandbox::read_lists(const RowsRequest& request) {
    send(FrameKind::lists,
         {request.path, {request.dataset}},
         to_bytes(request),
         limits_.cpu_s_per_text * static_cast<double>(request.rows));
    const std::vector<std::byte> bytes = receive();
    return believed([&] { return lists_from(bytes, request.rows); });
}

}  // namespace lockstep
