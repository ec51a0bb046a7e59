// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/child.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/signals.hpp"

#include "drill/drill_report.hpp"
#include "drill/faults.hpp"
#include "train/short_training.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// Returns the reason why no file system could be mounted.
struct MountRefused {
    std::string why;
};

MountRefused refused(const char* what) {
    return {fmt::format("{}: {}", what, std::strerror(errno))};
}

// Maps one user, who keeps his name: files stay his.
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
            throw refused("this user may not mount file systems here");
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
    const std::string text = serialize(report_of(work));
    write_all(out, std::as_bytes(std::span(text)), "pipe");
    ::_exit(0);  // the parent removes what it has made
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

/// Runs `work` in a child with mounts of its own, for which root's rights or unprivileged user
/// namespaces are needed; they go with it. `look` is called ten times a second meanwhile, and may
/// throw: then the child is told to end, too. The report says why it was skipped where the system
/// refuses, also where `work` throws MountRefused. To be called while there is one thread.
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
    return deserialize<FaultReport>(text, "the rehearsal's report");
}

/// Within that: an empty memory file system of `bytes` over the folder `at`. Throws MountRefused.
void mount_small(const fs::path& at, std::uint64_t bytes) {
    const std::string options = fmt::format("size={},mode=0700", bytes);
    if (::mount("tmpfs", at.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
        throw refused("no small file system can be mounted here");
}

constexpr std::uint64_t disk_bytes = 128u << 20, shm_bytes = 1u << 20;

/// Takes all that is left of a file system, also where others take and give meanwhile.
void fill(const fs::path& file) {
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) throw system_error("create", file, errno);
    constexpr std::uint64_t page_bytes = 4096;
    std::uint64_t size = 0, part = free_bytes(file.parent_path());
    while (part >= page_bytes) {
        if (::posix_fallocate(fd.value(), static_cast<off_t>(size), static_cast<off_t>(part)) == 0)
            size += part;
        else
            part /= 2;
        part = std::min(part, free_bytes(file.parent_path()));
    }
}

/// Checks the training's output, because it may have had no room to log.
Expectation expect_said(const Struck& struck, const std::string& words) {
    const bool is_said = struck.output.find(words) != std::string::npos;
    return {"its message", words, is_said ? words : "it does not say so", is_said};
}

FaultReport fill_own_disk(DrillBed& bed) {
    const fs::path disk = bed.run("disk");
    fs::create_directory(disk);
    mount_small(disk, disk_bytes);
    Attack attack{.name = "disk/run", .data = bed.data()};
    attack.strike = [&](const LiveRun&) {
        fill(disk / "filler");
        return fmt::format("a file system of {} was filled while the training wrote to it",
                           bytes_text(disk_bytes));
    };
    const Struck struck = bed.train(attack);
    FaultReport report{.done = struck.done};
    const bool is_seen_early = struck.output.find("error E403") != std::string::npos;
    report.expectations = {expect_exit(73, struck),
                           expect_said(struck, is_seen_early ? "error E403" : "error E405"),
                           bed.expect_nothing_left(attack)};
    fs::remove(disk / "filler");
    report.expectations.push_back(bed.expect_same_parameters(attack));
    return report;
}

FaultReport fill_own_shm(DrillBed& bed) {
    mount_small("/dev/shm", shm_bytes);
    const Attack attack{.name = "full-shm", .data = bed.data()};
    Expectation same = bed.expect_same_parameters(attack);
    same.what = "training all the same";
    FaultReport report{
        .done = fmt::format("a training in whose /dev/shm there are {}", bytes_text(shm_bytes))};
    report.expectations = {same, bed.expect_nothing_left(attack)};
    return report;
}

/// In a child, whose parent shows how far it is.
FaultReport rehearse_apart(DrillBed& bed, const char* name, FaultReport (*rehearse)(DrillBed&)) {
    const auto work = [&] {
        DrillBed apart(bed.settings(), [](const std::string&) { give_up_if_asked("the drill"); });
        return rehearse(apart);
    };
    return with_own_mounts(work, [&] { bed.look(name); });
}

}  // namespace

FaultReport fill_disk(DrillBed& bed) {
    return rehearse_apart(bed, "full-disk", fill_own_disk);
}

FaultReport fill_shm(DrillBed& bed) {
    return rehearse_apart(bed, "full-shm", fill_own_shm);
}

}  // namespace lockstep
