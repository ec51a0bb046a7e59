// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/timed_read.hpp"

#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace lockstep {

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

}  // namespace lockstep
