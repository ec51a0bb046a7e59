// SPDX-License-Identifier: Apache-2.0
#include "runs/resume_command.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/run_directory.hpp"

#include "command.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string absolute_text(const fs::path& path) {
    std::error_code unknown;
    const fs::path found = fs::absolute(path, unknown).lexically_normal();
    return (unknown ? path : found.has_filename() ? found : found.parent_path()).string();
}

std::string resuming_line(const fs::path& run,
                          const std::string& program,
                          const ChangedSettings& changed) {
    std::string words =
        fmt::format("{} train --resume {}", program, shell_word(absolute_text(run)));
    for (const auto& [name, value] : changed)
        words += fmt::format(" --{} {}", name, shell_word(value));
    return words;
}

// What was in files that every command reads is there still.
std::string line_of(const Json& config, const OptionTable& table, const std::string& program) {
    std::string variables, words;
    for (const Option* option : options_of(table)) {
        const Json* const given = config.find(option->name);
        if (!given) continue;
        const std::string value = given->at("value").get<std::string>();
        const std::string origin = given->at("origin").get<std::string>();
        if (origin.starts_with("LOCKSTEP_"))
            variables += fmt::format("{}={} ", origin, shell_word(value));
        else if (origin == "command line" && option->kind == OptionKind::flag)
            words += fmt::format(" --{}", option->name);
        else if (origin == "command line")
            words += fmt::format(" --{} {}", option->name, shell_word(value));
    }
    return words.empty() ? "" : variables + program + " train" + words;
}

// In the folder in which it was given first, for the sake of its relative paths and of files that
// are read there.
std::string in_its_folder(const std::string& line, const std::string& folder) {
    std::error_code unknown;
    if (line.empty() || fs::equivalent(folder, fs::current_path(unknown), unknown)) return line;
    if (fs::is_directory(folder, unknown))
        return fmt::format("(cd {} && {})", shell_word(folder), line);
    return fmt::format("{}   # its relative paths are of the folder in which it was given{}",
                       line,
                       folder.empty() ? "" : ": " + printable(folder));
}

}  // namespace

std::string resume_command(const fs::path& run,
                           const std::string& program,
                           const ChangedSettings& changed) {
    try {
        const RunRecord record = read_run_record(run);
        if (std::ranges::find(changed, "run", &ChangedSettings::value_type::first) == changed.end())
            return resuming_line(run, program, changed);
        Json config = record.config;
        for (const auto& [name, value] : changed)
            config[name] = {{"value", name == "run" ? absolute_text(value) : value},
                            {"origin", "command line"}};
        return in_its_folder(line_of(config, train_command().table, program), record.created_in);
    } catch (const Error&) {
        return "";
    }
}

std::string resumption(const RunStatus& status, std::int64_t start, const std::string& program) {
    const bool can_go_on = status.condition == RunCondition::checkpointed ||
                           status.condition == RunCondition::failed ||
                           status.condition == RunCondition::lost;
    return can_go_on && start == status.incarnation ? resume_command(status.root, program) : "";
}

}  // namespace lockstep
