// SPDX-License-Identifier: Apache-2.0
#include "runs/resume_command.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/observe/run_directory.hpp"

#include "command.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

// What was in files that every command reads is there still.
std::string line_of(const Json& config, const OptionTable& table, const std::string& program) {
    std::string variables, words;
    for (const OptionSection& section : table)
        for (const Option& option : section.options) {
            const Json* const given = config.find(option.name);
            if (!given) continue;
            const std::string value = given->at("value").get<std::string>();
            const std::string origin = given->at("origin").get<std::string>();
            if (origin.starts_with("LOCKSTEP_"))
                variables += fmt::format("{}={} ", origin, shell_word(value));
            else if (origin == "command line" && option.kind == OptionKind::flag)
                words += fmt::format(" --{}", option.name);
            else if (origin == "command line")
                words += fmt::format(" --{} {}", option.name, shell_word(value));
        }
    return words.empty() ? "" : variables + program + " train" + words;
}

}  // namespace

std::string resume_command(const fs::path& run,
                           const std::string& program,
                           const ChangedOptions& changed) {
    try {
        Json config = read_run_record(run).config;
        for (const auto& [name, value] : changed)
            config[name] = {{"value", value}, {"origin", "command line"}};
        return line_of(config, train_command().table, program);
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
