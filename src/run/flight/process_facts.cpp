// SPDX-License-Identifier: Apache-2.0
#include "flight/process_facts.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <cerrno>
#include <csignal>
#include <span>
#include <sstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Returns "" if it cannot be read: files of /proc vanish with their process.
std::string text_of(const std::string& path) {
    try {
        const UniqueFd file = open_for_reading(path);
        std::string text(4096, '\0');
        text.resize(read_at(file.value(), std::as_writable_bytes(std::span(text)), 0, path));
        return text;
    } catch (const Error&) {
        return "";
    }
}

std::string boot_id() {
    return text_of("/proc/sys/kernel/random/boot_id").substr(0, 36);
}

std::uint64_t pid_namespace() {
    struct stat facts {};
    return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

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

ProcessIdentity this_process() {
    const auto stat = parse_process_stat(text_of("/proc/self/stat"));
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
    const auto stat = parse_process_stat(text_of(fmt::format("/proc/{}/stat", process.pid)));
    if (!stat) {
        const auto pid = static_cast<pid_t>(process.pid);
        return ::kill(pid, 0) != 0 && errno == ESRCH ? Life::gone : Life::elsewhere;
    }
    if (stat->start_ticks != process.start_ticks) return Life::gone;
    if (stat->state == 'Z' || stat->state == 'X') return Life::gone;
    return stat->state == 'T' || stat->state == 't' ? Life::stopped : Life::running;
}

}  // namespace lockstep
