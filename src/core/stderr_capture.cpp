// SPDX-License-Identifier: Apache-2.0
// stderr is the file itself, not a pipe to the thread: the content of a pipe is lost with its
// reader, and the most important output is the last before a process dies.
#include "stderr_capture.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/signals.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds look_every(100);

// For the handler of crashes.
std::atomic<int> file_fd{-1}, before_fd{STDERR_FILENO};
std::atomic<std::uint64_t> passed_on{0};
std::atomic<const char*> last_word{nullptr};
std::array<struct sigaction, crash_signals.size()> actions_before;

// Makes only system calls: a handler may call it. The thread that moves `passed_on` passes that
// piece on.
std::size_t pass_on(char* buffer, std::size_t size) {
    std::uint64_t at = passed_on.load();
    const ssize_t got = ::pread(file_fd.load(), buffer, size, static_cast<off_t>(at));
    if (got <= 0) return 0;
    const auto bytes = static_cast<std::size_t>(got);
    if (!passed_on.compare_exchange_strong(at, at + bytes)) return 0;
    for (std::size_t done = 0; done < bytes;) {
        const ssize_t wrote = ::write(before_fd.load(), buffer + done, bytes - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) break;
        done += static_cast<std::size_t>(wrote);
    }
    return bytes;
}

void pass_all_on() {
    char buffer[1024];
    while (pass_on(buffer, sizeof buffer) > 0) {
    }
}

// Also writes the usual output of a crash, such as MPI's stack trace, into the file. MPI's handler
// raises the signal again: that waits until this one is done.
void handle_crash(int signal, siginfo_t* about, void* context) {
    mirror_signal(signal);
    pass_all_on();
    for (std::size_t i = 0; i < crash_signals.size(); ++i) {
        if (crash_signals[i] != signal) continue;
        const struct sigaction& old = actions_before[i];
        if ((old.sa_flags & SA_SIGINFO) != 0)
            old.sa_sigaction(signal, about, context);
        else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN)
            old.sa_handler(signal);
    }
    pass_all_on();
    if (const char* text = last_word.exchange(nullptr)) [[maybe_unused]]
        const auto wrote = ::write(before_fd.load(), text, ::strlen(text));
    ::signal(signal, SIG_DFL);
    ::raise(signal);
}

void take_crashes() {
    struct sigaction ours {};
    ours.sa_sigaction = handle_crash;
    ours.sa_flags = SA_SIGINFO;
    for (std::size_t i = 0; i < crash_signals.size(); ++i)
        ::sigaction(crash_signals[i], &ours, &actions_before[i]);
}

void give_crashes_back() {
    for (std::size_t i = 0; i < crash_signals.size(); ++i)
        ::sigaction(crash_signals[i], &actions_before[i], nullptr);
}

}  // namespace

UniqueFd open_append(const fs::path& path) {
    UniqueFd fd = open_for_writing(path, O_RDWR | O_CREAT | O_APPEND);
    if (!fd) {
        const int cause = errno;
        const Error reason = system_error("write", path, cause);
        for (const int limit : {EMFILE, ENFILE, ENOSPC, EDQUOT, ENXIO})
            if (cause == limit) throw reason;  // another folder would not help
        throw Error("E401", reason.what(), reason.why(), "use a run folder that you may write to");
    }
    return fd;
}

StderrCapture::StderrCapture(const fs::path& file, std::string at_crash, Take take)
    : path_(file),
      at_crash_(std::move(at_crash)),
      take_(std::move(take)),
      file_(open_append(file)),
      before_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    taken_ = static_cast<std::uint64_t>(::lseek(file_.value(), 0, SEEK_END));
    thread_ = std::thread([this] { watch(); });  // the only step that may fail
    passed_on = taken_;
    before_fd = before_.value();
    file_fd = file_.value();
    last_word = at_crash_.empty() ? nullptr : at_crash_.c_str();
    ::dup2(file_.value(), STDERR_FILENO);
    take_crashes();
}

StderrCapture::~StderrCapture() {
    {
        const std::lock_guard lock(sleeping_);
        is_ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
    ::dup2(before_.value(), STDERR_FILENO);
    give_crashes_back();
    last_word = nullptr;
    drain();
    before_fd = STDERR_FILENO;
    file_fd = -1;
    if (!line_.empty()) take_(line_, taken_);
    if (::lseek(file_.value(), 0, SEEK_END) == 0) ::unlink(path_.c_str());
}

int StderrCapture::before() {
    return before_fd.load();
}

void StderrCapture::drain() {
    const std::lock_guard lock(draining_);
    std::array<char, 4096> buffer;
    while (const std::size_t got = pass_on(buffer.data(), buffer.size()))
        take_lines({buffer.data(), got});
}

void StderrCapture::take_lines(std::string_view bytes) {
    constexpr std::size_t longest = 64 << 10;
    for (const char c : bytes) {
        ++taken_;
        if (c != '\n') line_ += c;
        if (c != '\n' && line_.size() < longest) continue;
        take_(line_, taken_);
        line_.clear();
    }
}

void StderrCapture::watch() {
    std::unique_lock lock(sleeping_);
    while (!wake_.wait_for(lock, look_every, [this] { return is_ending_; })) {
        lock.unlock();
        drain();
        lock.lock();
    }
}

}  // namespace lockstep
