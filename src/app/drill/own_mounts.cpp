// SPDX-License-Identifier: Apache-2.0
#include "drill/own_mounts.hpp"

#include "lockstep/core/child.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/core/timed_read.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

namespace lockstep {
namespace {

MountRefused refused(const char* what) {
    return {fmt::format("{}: {}", what, std::strerror(errno))};
}

// Of one user, who keeps his name: files stay his.
void map_this_user(uid_t user, gid_t group) {
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << fmt::format("{} {} 1", user, user);
    std::ofstream("/proc/self/gid_map") << fmt::format("{} {} 1", group, group);
}

void leave_mounts() {
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    if (::unshare(CLONE_NEWNS) != 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            throw refused("this user may not have mounts of its own here");
        map_this_user(user, group);
    }
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        throw refused("mounts cannot be made private here");
}

FaultReport report_of(const std::function<FaultReport()>& work) {
    try {
        leave_mounts();
        return work();
    } catch (const MountRefused& refusal) {
        return {.why_skipped = refusal.why};
    } catch (const std::exception& exception) {
        const Error error = as_error(exception);
        return {.expectations = {{"the rehearsal", "to its end", error.text(), false}}};
    }
}

[[noreturn]] void be_child(const std::function<FaultReport()>& work, int out, int parent) {
    die_with_parent(parent);
    const std::string text = report_json(report_of(work)).dump();
    write_all(out, std::as_bytes(std::span(text)), "pipe");
    ::_exit(0);  // what the parent has made is the parent's to remove
}

std::string read_to_end(int fd, const std::function<void()>& look) {
    constexpr double pace_s = 0.1;
    std::string text;
    std::array<char, 4096> block{};
    while (true) {
        look();
        const auto got = timed_read(fd, std::as_writable_bytes(std::span(block)), now_s() + pace_s);
        if (got && *got == 0) return text;
        if (got) text.append(block.data(), *got);
    }
}

}  // namespace

FaultReport with_own_mounts(const std::function<FaultReport()>& work,
                            const std::function<void()>& look) {
    std::array<int, 2> ends{};
    check(::pipe2(ends.data(), O_CLOEXEC) == 0,
          [] { return system_error("open", "a pipe", errno); });
    const UniqueFd in(ends[0]);
    UniqueFd out(ends[1]);
    const int parent = ::getpid();
    const pid_t pid = ::fork();
    check(pid >= 0, [] { return system_error("start", "a process", errno); });
    if (pid == 0) be_child(work, out.value(), parent);
    out.reset();
    std::string text;
    try {
        text = read_to_end(in.value(), look);
    } catch (...) {
        ::kill(pid, SIGTERM);  // it ends its training, and itself
        reap_child(pid);
        throw;
    }
    reap_child(pid);
    return report_of_json(parse_json(text, "the rehearsal's report"));
}

void mount_small(const std::filesystem::path& at, std::uint64_t bytes) {
    const std::string options = fmt::format("size={},mode=0700", bytes);
    if (::mount("tmpfs", at.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
        throw refused("no small file system can be mounted here");
}

}  // namespace lockstep
