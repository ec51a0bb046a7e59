// SPDX-License-Identifier: Apache-2.0
#include "scatter_read.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>

namespace lockstep {

std::uint64_t ScatterRead::run(int fd, std::uint64_t offset, const std::filesystem::path& path) {
    std::uint64_t total = 0;
    for (auto next = places_.begin(); next != places_.end();) {
        const auto count = std::min<std::ptrdiff_t>(places_.end() - next, IOV_MAX);
        const ssize_t got =
            ::preadv(fd, &*next, static_cast<int>(count), static_cast<off_t>(offset + total));
        if (got < 0 && errno == EINTR) continue;
        check(got >= 0, [&] { return system_error("read", path.string(), errno); });
        if (got == 0) break;
        total += static_cast<std::uint64_t>(got);
        auto left = static_cast<std::size_t>(got);
        while (next != places_.end() && left >= next->iov_len) left -= (next++)->iov_len;
        if (left > 0) {
            next->iov_base = static_cast<std::byte*>(next->iov_base) + left;
            next->iov_len -= left;
        }
    }
    places_.clear();
    return total;
}

}  // namespace lockstep
