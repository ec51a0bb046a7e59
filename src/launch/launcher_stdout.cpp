// SPDX-License-Identifier: Apache-2.0
#include "launcher_stdout.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep {
namespace {

bool is_at_hand(int fd, short events) {
    pollfd asked{fd, events, 0};
    return fd >= 0 && ::poll(&asked, 1, 0) > 0 && asked.revents != 0;
}

}  // namespace

LauncherStdout::LauncherStdout(UniqueFd pipe) : pipe_(std::move(pipe)) {
    constexpr int room = 1 << 20;  // for what comes while this process is stopped
    ::fcntl(pipe_.value(), F_SETPIPE_SZ, room);
}

pollfd LauncherStdout::awaited() const {
    if (!unsent_.empty()) return {STDOUT_FILENO, POLLOUT, 0};
    return {pipe_.value(), POLLIN, 0};
}

void LauncherStdout::move() {
    std::array<char, PIPE_BUF> buffer;
    if (unsent_.empty() && is_at_hand(pipe_.value(), POLLIN)) {
        const ssize_t got = ::read(pipe_.value(), buffer.data(), buffer.size());
        if (got == 0) pipe_.reset();
        if (got <= 0) return;
        unsent_.assign(buffer.data(), static_cast<std::size_t>(got));
    }
    if (unsent_.empty() || !is_at_hand(STDOUT_FILENO, POLLOUT)) return;
    const ssize_t wrote = ::write(STDOUT_FILENO, unsent_.data(), unsent_.size());
    if (wrote > 0) unsent_.erase(0, static_cast<std::size_t>(wrote));
    if (wrote >= 0 || errno == EINTR || errno == EAGAIN) return;
    is_unread_ = is_unread_ || errno == EPIPE;
    unsent_.clear();  // nobody is there, or the disk is full
}

bool LauncherStdout::has_more() const {
    pollfd asked{pipe_.value(), POLLIN, 0};
    return !unsent_.empty() || (pipe_ && ::poll(&asked, 1, 0) > 0 && (asked.revents & POLLIN) != 0);
}

bool LauncherStdout::has_just_lost_reader() {
    return is_unread_ && !std::exchange(is_told_, true);
}

}  // namespace lockstep
