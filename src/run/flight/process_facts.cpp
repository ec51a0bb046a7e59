// SPDX-License-Identifier: Apache-2.0
#include "flight/process_facts.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/split.hpp"

#include <cerrno>
#include <csignal>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::string boot_id() {
    return text_of("/proc/sys/kernel/random/boot_id").substr(0, 36);
}

std::uint64_t pid_namespace() {
    struct stat facts {};
    return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

// "S (sleeping)" from /proc/PID/task/TID/status.
std::string state_of(const fs::path& status) {
    constexpr std::string_view key = "State:\t";
    for (const std::string& line : split(text_of(status), '\n'))
        if (line.starts_with(key)) return printable(line.substr(key.size()));
    return "?";
}

constexpr int watched = 8;

}  // namespace

std::optional<ProcessStat> parse_process_stat(const std::string& text) {
    const auto name_end = text.rfind(')');
    if (name_end == text.npos) return std::nullopt;
    std::istringstream fields(text.substr(name_end + 1));
    ProcessStat stat;
    fields >> stat.state;
    constexpr int between = 18;  // fields 4 to 21
    std::string skipped;
    for (int i = 0; i < between; ++i) fields >> skipped;
    fields >> stat.start_ticks;
    if (!fields) return std::nullopt;
    return stat;
}

// Of the first thread: an emulator of other processors (qemu) makes up /proc/PID/stat of its own
// process, and the start in it is not what others read.
static std::optional<ProcessStat> stat_of(std::int64_t pid) {
    return parse_process_stat(text_of(fmt::format("/proc/{0}/task/{0}/stat", pid)));
}

ProcessIdentity this_process() {
    const auto stat = stat_of(::getpid());
    return {.boot_id = boot_id(),
            .pid_namespace = pid_namespace(),
            .pid = ::getpid(),
            .start_ticks = stat ? stat->start_ticks : 0};
}

Life life_of(const ProcessIdentity& process) {
    static const std::string here = boot_id();
    static const std::uint64_t pids = pid_namespace();
    const bool is_here = !here.empty() && process.boot_id == here &&
                         process.pid_namespace == pids && process.pid > 0;
    if (!is_here) return Life::elsewhere;
    const auto stat = stat_of(process.pid);
    if (!stat) {
        const auto pid = static_cast<pid_t>(process.pid);
        return ::kill(pid, 0) != 0 && errno == ESRCH ? Life::gone : Life::elsewhere;
    }
    if (stat->start_ticks != process.start_ticks) return Life::gone;
    if (stat->state == 'Z' || stat->state == 'X') return Life::gone;
    return stat->state == 'T' || stat->state == 't' ? Life::stopped : Life::running;
}

std::string thread_list() {
    std::string text = fmt::format("{:>8}  {:<16} {:<16} {}\n", "thread", "name", "state", "in");
    std::error_code failed;
    for (const auto& task : fs::directory_iterator("/proc/self/task", failed)) {
        const auto& path = task.path();
        text += fmt::format("{:>8}  {:<16} {:<16} {}\n",
                            path.filename().string(),
                            printable(text_of(path / "comm")),
                            state_of(path / "status"),
                            printable(text_of(path / "wchan")));
    }
    return text;
}

Peers::Peers(fs::path folder, int rank, int ranks) : folder_(std::move(folder)) {
    for (int step = 1; step < ranks && step <= watched; ++step)
        unknown_.push_back((rank + step) % ranks);
}

Life Peers::worst() {
    std::erase_if(unknown_, [&](int rank) {
        const auto process = read_ring_process(ring_path(folder_, rank));
        if (process) known_.emplace(rank, *process);
        return process.has_value();
    });
    Life worst = Life::running;
    for (const auto& [rank, process] : known_) {
        const Life life = life_of(process);
        if (life == Life::stopped) worst = Life::stopped;
        if (life != Life::gone) continue;
        if (read_rank_trace(ring_path(folder_, rank)).end != FlightEnd::finished) return Life::gone;
    }
    return worst;
}

}  // namespace lockstep
