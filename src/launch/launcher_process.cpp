// SPDX-License-Identifier: Apache-2.0
#include "launcher_process.hpp"

#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Returns nothing if this kernel has no such lists.
std::optional<std::vector<pid_t>> listed_children(pid_t parent) {
    std::vector<pid_t> found;
    std::error_code gone;
    bool is_listed = false;
    for (const auto& thread :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", parent), gone)) {
        std::ifstream list(thread.path() / "children");
        is_listed = is_listed || list.is_open();
        for (pid_t child = 0; list >> child;) found.push_back(child);
    }
    if (!is_listed) return {};
    return found;
}

bool lives(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(file, line);
    const auto name_end = line.rfind(')');
    if (name_end == line.npos || name_end + 2 >= line.size()) return false;
    const char state = line[name_end + 2];
    return state != 'Z' && state != 'X';
}

// Kills children that are not in `kept` and reaps them. Returns whether there were any.
bool end_children(const std::vector<pid_t>& kept) {
    bool found = false;
    for (const pid_t child : listed_children(::getpid()).value_or(kept)) {
        if (std::ranges::find(kept, child) != kept.end()) continue;
        found = true;
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, WNOHANG);
    }
    return found;
}

}  // namespace

bool LauncherProcess::has_ended() {
    has_ended_ = has_ended_ || ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return has_ended_;
}

void LauncherProcess::send(int signal) const {
    if (has_ended_) return;
    ::kill(pid_, signal);
    ::kill(pid_, SIGCONT);
}

std::optional<bool> LauncherProcess::has_living_children() const {
    const auto children = listed_children(pid_);
    if (!children) return {};
    return std::ranges::any_of(*children, lives);
}

OrphanWatch::OrphanWatch() : before_(listed_children(::getpid()).value_or(std::vector<pid_t>())) {
    ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper_before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

OrphanWatch::~OrphanWatch() {
    constexpr double patience_s = 5;
    for (const double begin_s = now_s(); end_children(before_) && now_s() - begin_s < patience_s;)
        ::usleep(1'000);
    ::prctl(PR_SET_CHILD_SUBREAPER, subreaper_before_);
}

bool is_ready(int fd, short events) {
    pollfd asked{fd, events, 0};
    return fd >= 0 && ::poll(&asked, 1, 0) > 0 && asked.revents != 0;
}

PassedPipe::PassedPipe(UniqueFd pipe, int target, Change change)
    : pipe_(std::move(pipe)), target_(target), change_(std::move(change)) {
    constexpr int room = 1 << 20;  // for what comes while this process is stopped
    if (pipe_) ::fcntl(pipe_.value(), F_SETPIPE_SZ, room);
}

pollfd PassedPipe::awaited() const {
    if (!unsent_.empty()) return {target_, POLLOUT, 0};
    return {pipe_.value(), POLLIN, 0};
}

void PassedPipe::move() {
    std::array<char, PIPE_BUF> buffer;
    if (unsent_.empty() && is_ready(pipe_.value(), POLLIN)) {
        const ssize_t got = ::read(pipe_.value(), buffer.data(), buffer.size());
        if (got == 0) pipe_.reset();
        if (got <= 0) return;
        unsent_ = change_({buffer.data(), static_cast<std::size_t>(got)});
    }
    if (unsent_.empty() || !is_ready(target_, POLLOUT)) return;
    const ssize_t wrote = ::write(target_, unsent_.data(), unsent_.size());
    if (wrote > 0) unsent_.erase(0, static_cast<std::size_t>(wrote));
    if (wrote >= 0 || errno == EINTR || errno == EAGAIN) return;
    is_unread_ = is_unread_ || errno == EPIPE;
    unsent_.clear();  // nobody is there, or the disk is full
}

void PassedPipe::add(const std::function<std::string()>& text) {
    if (unsent_.empty()) unsent_ = text();
}

bool PassedPipe::has_more() const {
    pollfd asked{pipe_.value(), POLLIN, 0};
    return !unsent_.empty() || (pipe_ && ::poll(&asked, 1, 0) > 0 && (asked.revents & POLLIN) != 0);
}

bool PassedPipe::has_just_lost_reader() {
    return is_unread_ && !std::exchange(is_told_, true);
}

}  // namespace lockstep
