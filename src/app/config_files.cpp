// SPDX-License-Identifier: Apache-2.0
#include "config_files.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* site_config = "/etc/lockstep/config.toml";

std::filesystem::path user_config(const Environment& environment) {
    const std::filesystem::path file = "lockstep/config.toml";
    if (const auto folder = environment.text("XDG_CONFIG_HOME"); folder && !folder->empty())
        return *folder / file;
    const auto home = environment.text("HOME").value_or("");
    return home.empty() ? std::filesystem::path() : home / (".config" / file);
}

// "bench comm" is [bench.comm].
std::string section_of(std::string command) {
    std::ranges::replace(command, ' ', '.');
    return command + ".";
}

// All options of train are among `names`.
bool takes_train(const std::vector<std::string>& names, const std::vector<std::string>& of_train) {
    return std::ranges::all_of(of_train, [&](const std::string& name) {
        return std::ranges::find(names, name) != names.end();
    });
}

Error unknown_key(const ConfigEntry& entry,
                  const std::string& key,
                  const std::vector<std::string>& known) {
    const std::string nearest = did_you_mean(key, known);
    return Error("E111",
                 fmt::format("{}: unknown key '{}'", entry.origin, key),
                 "options stand in a table with their command's name, such as [train]",
                 nearest.empty() ? "see 'lockstep COMMAND --help'" : nearest);
}

}  // namespace

std::vector<Config> read_standing_configs(const Environment& environment) {
    std::vector<Config> configs;
    const auto user = user_config(environment);
    if (!user.empty() && fs::exists(status_of(user))) configs.push_back(read_config(user));
    const auto named = environment.text("LOCKSTEP_SITE_CONFIG");
    const bool has_site = named ? !named->empty() : fs::exists(status_of(site_config));
    if (has_site) configs.push_back(read_config(named.value_or(site_config)));
    return configs;
}

void check_sections(const Config& config, const std::vector<Command>& commands) {
    std::vector<std::string> known;
    for (const Command& command : commands)
        for (const std::string& name : option_names(command.table))
            if (name != "config") known.push_back(section_of(command.name) + name);
    for (const auto& [key, entry] : config)
        if (std::ranges::find(known, key) == known.end()) throw unknown_key(entry, key, known);
}

std::vector<Config> standing_values(const Command& command,
                                    const std::vector<Command>& commands,
                                    const Environment& environment) {
    const auto names = option_names(command.table);
    if (names.empty()) return {};
    const auto of_train = option_names(train_command().table);
    std::vector<Config> found;
    for (const Config& config : read_standing_configs(environment)) {
        check_sections(config, commands);
        Config& own = found.emplace_back();
        for (const std::string& name : names) {
            auto entry = config.find(section_of(command.name) + name);
            if (entry == config.end() && takes_train(names, of_train))
                entry = config.find("train." + name);
            if (entry != config.end()) own[name] = entry->second;
        }
    }
    return found;
}

}  // namespace lockstep
