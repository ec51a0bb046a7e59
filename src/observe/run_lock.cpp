// SPDX-License-Identifier: Apache-2.0
#include "run_lock.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string user_name() {
    std::array<char, 4096> buffer{};
    passwd entry{};
    passwd* found = nullptr;
    const auto uid = ::geteuid();
    if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found) {
        return found->pw_name;
    }
    return fmt::format("uid-{}", uid);
}

std::string lease_text() {
    const Json lease{{"by", user_at_host()},
                     {"host", host_name()},
                     {"pid", ::getpid()},
                     {"since", utc_text(unix_time_s())}};
    return lease.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

/// What the lease says, in words. It is a stranger's text: shown only in its known parts.
std::string holder_text(const fs::path& path) {
    try {
        const auto lease = read_json(path, 4096);
        const auto origin = path.string();
        return printable(fmt::format("process {} on {} ({}) since {}",
                                     json_field<std::int64_t>(lease, "pid", origin),
                                     json_field<std::string>(lease, "host", origin),
                                     json_field<std::string>(lease, "by", origin),
                                     json_field<std::string>(lease, "since", origin)));
    } catch (const Error&) {
        return "a process that has not said who it is yet";
    }
}

bool try_lock(const UniqueFd& file, const fs::path& path) {
    while (::flock(file.value(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return false;
        if (errno != EINTR) throw system_error("lock", path.string(), errno);
    }
    return true;
}

Error in_use(const fs::path& path, double wait_s) {
    const auto waited = wait_s > 0 ? fmt::format(" (waited {})", duration_text(wait_s)) : "";
    return {"E404",
            fmt::format("run '{}' is in use{}", path.parent_path().string(), waited),
            "its lock is held by " + holder_text(path),
            "wait for that job or end it (scancel, kill); or use another run directory"};
}

}  // namespace

std::string user_at_host() {
    return user_name() + '@' + host_name();
}

UniqueFd take_run_lock(const fs::path& path, double wait_s) {
    constexpr std::chrono::milliseconds pause(50);
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) throw system_error("open", path.string(), errno);
    const double deadline = now_s() + wait_s;
    while (!try_lock(file, path)) {
        check(now_s() < deadline, [&] { return in_use(path, wait_s); });
        std::this_thread::sleep_for(pause);
    }
    clear_lease(file);
    write_all(file.value(), bytes_of(lease_text()), path);
    return file;
}

RunHolder read_run_holder(const fs::path& path) {
    if (std::error_code missing; !fs::is_regular_file(path, missing)) return {};
    const UniqueFd file = open_for_reading(path);
    RunHolder holder;
    holder.is_held = ::flock(file.value(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    try {
        const auto lease = read_json(path, 4096);
        const auto origin = path.string();
        holder.pid = json_field<std::int64_t>(lease, "pid", origin);
        holder.host = printable(json_field<std::string>(lease, "host", origin));
        holder.since = printable(json_field<std::string>(lease, "since", origin));
        holder.is_here = holder.host == host_name();
    } catch (const Error&) {
        // Empty after an orderly end; a torn one says as little.
    }
    return holder;
}

void clear_lease(const UniqueFd& lock) noexcept {
    if (lock && ::ftruncate(lock.value(), 0) == 0) ::lseek(lock.value(), 0, SEEK_SET);
}

}  // namespace lockstep
