// SPDX-License-Identifier: Apache-2.0
#include "train/train_options.hpp"

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/run_directory.hpp"

#include "option_groups.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace lockstep {
namespace {

std::vector<Option> ranks_options(TrainOptions& options) {
    const auto ranks = ranks_section(options.np, options.oversubscribe).options;
    return {ranks[0],
            hosts_option(options.hosts),
            ranks[1],
            flag_option("dry-run", options.dry_run, "print the mpirun line of --np and stop"),
            path_option("plan",
                        "FILE",
                        options.plan,
                        "stop unless ranks run as this plan of 'lockstep map' says"),
            list_option("skip-checks",
                        "ID[,ID]",
                        options.skip_checks,
                        "checks of 'lockstep doctor' to leave out at the start, or all")};
}

// What each start is told anew. A launcher has said how many ranks there are.
bool is_of_start(const std::string& name) {
    constexpr std::array always{"config", "deadline", "dry-run", "plan", "resume", "run"};
    constexpr std::array launched{"np", "hosts"};
    return std::ranges::find(always, name) != always.end() ||
           (launched_by_mpi() && std::ranges::find(launched, name) != launched.end());
}

// What another run with these settings does not have: where the first began, and what its ranks
// settled for it.
bool is_of_run(const std::string& name, bool is_default) {
    constexpr std::array origins{"from", "load-weights", "load-skip", "load-prefix"};
    return std::ranges::find(origins, name) != origins.end() ||
           (is_default && std::ranges::find(settled_settings, name) != settled_settings.end());
}

// Of a command that has the option.
std::optional<std::string> given_text(const std::string& name,
                                      const OptionTable& table,
                                      const ParsedLine& line,
                                      const Environment& environment) {
    const auto has_it = [&](const OptionSection& section) {
        return std::ranges::find(section.options, name, &Option::name) != section.options.end();
    };
    if (std::ranges::none_of(table, has_it)) return {};
    const auto given = line.options.find(name);
    if (given != line.options.end()) return given->second;
    const std::string variable = name == "from" ? "LOCKSTEP_FROM" : "LOCKSTEP_RESUME";
    const auto text = environment.text(variable);
    return text && !text->empty() ? text : std::nullopt;
}

ConfigValue typed_value(const Option& option, const std::string& text) {
    if (option.kind == OptionKind::flag) return text == "true";
    if (option.kind == OptionKind::whole)
        if (const auto number = parse_integer(text)) return *number;
    if (option.kind == OptionKind::real)
        if (const auto number = parse_real(text)) return *number;
    return text;
}

}  // namespace

// The settings' sections, the first and the last with what only the command line knows.
OptionTable train_option_table(TrainOptions& options) {
    OptionTable table = setting_table(options.settings);
    table.front().options.push_back(path_option(
        "config", "FILE", options.config, "TOML file with any of these options as 'name = value'"));
    table.front().options.push_back(
        path_option("resume",
                    "RUN",
                    options.resume,
                    "run whose settings are taken, and which 'train' goes on with; options that "
                    "are given change them"));
    const auto own = ranks_options(options);
    table.back().options.insert(table.back().options.begin(), own.begin(), own.end());
    return table;
}

std::vector<Config> values_of_run(const OptionTable& table,
                                  const ParsedLine& line,
                                  const Environment& environment) {
    const std::optional<std::string> resumed = given_text("resume", table, line, environment);
    const std::optional<std::string> source = given_text("from", table, line, environment);
    if (!resumed && !source) return {};
    check_fits(!resumed || !(source || line.options.contains("run")),
               fmt::format("--resume and --{} are both given", source ? "from" : "run"),
               "--resume goes on with a run as it is, in its own folder",
               fmt::format("drop --{}", source ? "resume" : "run"));
    const fs::path run = resumed ? fs::path(*resumed) : run_source(*source).run;
    Config config;
    const Json origins = read_run_record(run).config;
    for (const auto& [name, text] : recorded_values(run, table)) {
        const bool is_default =
            origins.value(name, Json::object()).value("origin", "") == "default";
        if (is_of_start(name) || (source && is_of_run(name, is_default))) continue;
        config[name] = {typed_value(find_option(table, name), text),
                        is_default ? "default" : "run.json"};
    }
    return {config};
}

// The run that goes on has a length in steps.
void tell_of_idle_epochs(const TrainSettings& settings) {
    const auto& steps = settings.origins.at("max-steps");
    const auto& epochs = settings.origins.at("epochs");
    if (settings.max_steps > 0 && steps.origin == "run.json" && epochs.origin != "run.json" &&
        epochs.origin != "default")
        once(Level::warn,
             "--epochs {} has no effect, because the run has --max-steps {}; give --max-steps 0 "
             "with it",
             settings.epochs,
             settings.max_steps);
}

void keep_origins(TrainSettings& settings, const std::vector<ResolvedOption>& resolved) {
    for (const ResolvedOption& option : resolved) {
        settings.origins[option.name] = {ConfigValue(option.text), option.origin};
        for (const GivenValue& weaker : option.overridden)
            if (weaker.text != option.text && weaker.origin != "default")
                once(Level::info,
                     "{} = {} ({}) overrides {} ({})",
                     option.name,
                     option.text,
                     option.origin,
                     weaker.text,
                     weaker.origin);
    }
    tell_of_idle_epochs(settings);
}

}  // namespace lockstep
