// SPDX-License-Identifier: Apache-2.0
// Lets one process at a time into a run directory, by a lock that cannot be left behind: flock
// belongs to the open file, and the kernel closes that whenever its holder ends.
//
//     RUN/lock    [ lease: pid, host, user, since, SLURM job and start ]   flock: held | free
//                   for people and for the rule below                      decides
//
// A lease is text: it may be torn, old or forged. It decides only one case: the holder is an
// earlier start of this same SLURM job. Then SLURM has ended it or lost its node, and on a network
// file system its lock may persist without a process. A new file, locked already, is then renamed
// to the old one's path. Should the old start still run, its writes are fenced by the incarnation
// (run_directory.cpp).
//
// What must never happen:
// - Two holders. Who gets a lock looks whether the file is still the one at the path (is_still_at):
//   it may have been taken over between open and flock.
// - The lease's text reaches a terminal as it is: only its known fields, printable.
//
// Tested: run/run_directory_test.cpp (one at a time, killed holders, take-over and from whom
// not, garbage as lease).

#include "run_lock.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/shell_word.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

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

// The holder's own description.
struct Lease {
    std::string by, host;
    std::int64_t pid = 0;
    std::string since;
    std::string job;            // of SLURM; a requeued job keeps its number. Empty: none
    std::int64_t restarts = 0;  // of the job, as SLURM counts them
};

Lease own_lease() {
    const Environment environment;
    Lease own{.by = user_at_host(),
              .host = host_name(),
              .pid = ::getpid(),
              .since = utc_text(unix_time_s()),
              .job = {}};
    const auto job = environment.text("SLURM_JOB_ID");
    if (!job) return own;
    own.job = *job + '@' + environment.text("SLURM_CLUSTER_NAME").value_or("");
    const auto restarts = parse_integer(environment.text("SLURM_RESTART_COUNT").value_or("0"));
    own.restarts = restarts.value_or(0);
    return own;
}

void describe(Record& record, Lease& lease) {
    LOCKSTEP_EACH(record.field, lease.by, lease.host, lease.pid, lease.since);
    if (!record.wants("job", !lease.job.empty())) return;
    LOCKSTEP_EACH(record.field, lease.job, lease.restarts);
}

// Returns nothing for a torn lease, or for an empty one after a proper end.
std::optional<Lease> read_lease(const fs::path& path) try {
    return record_from_json<Lease>(read_json(path, 4096), path.string());
} catch (const Error&) {
    return {};
}

/// Returns the lease in words. Its text is untrusted: only known parts are shown.
std::string holder_text(const fs::path& path) {
    const auto lease = read_lease(path);
    if (!lease) return "a process that has not written its name yet";
    return printable(fmt::format(
        "process {} on {} ({}) since {}", lease->pid, lease->host, lease->by, lease->since));
}

/// Returns true if the holder is an earlier start of this job. SLURM starts a job again only when
/// it has ended it, or has lost its node: what is left of it there must not stop us.
bool is_held_by_earlier_start(const fs::path& path) {
    const Lease own = own_lease();
    const auto lease = own.job.empty() ? std::nullopt : read_lease(path);
    return lease && lease->job == own.job && lease->restarts < own.restarts;
}

UniqueFd open_lock_file(const fs::path& path, int flags) {
    UniqueFd file = open_for_writing(path, O_RDWR | O_CREAT | flags);
    if (!file) throw system_error("open", path.string(), errno);
    return file;
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
            fmt::format("'lockstep stop {}' makes it save and end; or wait for it, or use another "
                        "run directory",
                        shell_word(path.parent_path().string()))};
}

// A lock that was taken over lies no longer where others look for it.
bool is_still_at(const UniqueFd& file, const fs::path& path) {
    struct stat held {};
    struct stat found {};
    return ::fstat(file.value(), &held) == 0 && ::lstat(path.c_str(), &found) == 0 &&
           held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

void write_lease(const UniqueFd& file, const fs::path& path) {
    clear_lease(file);
    write_all(file.value(), bytes_of(json_of_record(own_lease()).dump() + '\n'), path);
}

// A lock cannot be torn out of a hand: a new one, held already, takes the place of its file.
UniqueFd take_over(const fs::path& path) {
    once(
        Level::warn,
        "the run's lock is taken over from {}: an earlier start of this job, which SLURM has ended",
        holder_text(path));
    const fs::path fresh = path.string() + ".new";
    std::error_code ignored;
    fs::remove(fresh, ignored);
    UniqueFd file = open_lock_file(fresh, O_EXCL);
    expect(try_lock(file, fresh), "nobody knows a lock that was just made");
    write_lease(file, fresh);
    fs::rename(fresh, path);
    return file;
}

}  // namespace

std::string user_at_host() {
    return user_name() + '@' + host_name();
}

std::string random_run_id() {
    std::array<std::uint64_t, 2> words{};
    if (::getrandom(words.data(), sizeof(words), 0) != sizeof(words)) {
        throw system_error("read", "getrandom", errno);
    }
    return hex64(words[0]) + hex64(words[1]);
}

UniqueFd take_run_lock(const fs::path& path, double wait_s) {
    constexpr std::chrono::milliseconds pause(50);
    const double deadline = now_s() + wait_s;
    while (true) {
        UniqueFd file = open_lock_file(path, 0);
        if (try_lock(file, path)) {
            if (!is_still_at(file, path)) continue;
            write_lease(file, path);
            return file;
        }
        if (now_s() >= deadline) break;
        std::this_thread::sleep_for(pause);
    }
    check(is_held_by_earlier_start(path), [&] { return in_use(path, wait_s); });
    return take_over(path);
}

RunHolder read_run_holder(const fs::path& path) {
    if (!fs::is_regular_file(status_of(path))) return {};
    const UniqueFd file = open_for_reading(path);
    RunHolder holder;
    holder.is_held = ::flock(file.value(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (const auto lease = read_lease(path)) {
        holder.pid = lease->pid;
        holder.host = printable(lease->host);
        holder.since = printable(lease->since);
        holder.is_here = holder.host == host_name();
    }
    return holder;
}

void clear_lease(const UniqueFd& lock) noexcept {
    if (lock && ::ftruncate(lock.value(), 0) == 0) ::lseek(lock.value(), 0, SEEK_SET);
}

}  // namespace lockstep
