// SPDX-License-Identifier: Apache-2.0
#include "flight/thread_list.hpp"

#include "lockstep/core/log.hpp"

#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string line_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return printable(line);
}

// "S (sleeping)" from /proc/PID/task/TID/status.
std::string state_of(const std::filesystem::path& status) {
    constexpr std::string_view key = "State:\t";
    std::ifstream file(status);
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(key)) return printable(line.substr(key.size()));
    return "?";
}

}  // namespace

std::string thread_list() {
    std::string text = fmt::format("{:>8}  {:<16} {:<16} {}\n", "thread", "name", "state", "in");
    std::error_code failed;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", failed)) {
        const auto& path = task.path();
        text += fmt::format("{:>8}  {:<16} {:<16} {}\n",
                            path.filename().string(),
                            line_of(path / "comm"),
                            state_of(path / "status"),
                            line_of(path / "wchan"));
    }
    return text;
}

}  // namespace lockstep
