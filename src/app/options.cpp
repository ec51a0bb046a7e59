// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/text_table.hpp"

#include "command.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <utility>

#include <boost/program_options.hpp>
#include <fmt/format.h>

namespace lockstep {
namespace {

namespace po = boost::program_options;

constexpr const char* command_line = "command line";

po::options_description describe(const OptionTable& table) {
    po::options_description description;
    description.add_options()("help,h", po::bool_switch(), "");
    for (const Option* option : options_of(table)) {
        const bool is_flag = option->kind == OptionKind::flag;
        const po::value_semantic* value = is_flag
                                              ? static_cast<po::value_semantic*>(po::bool_switch())
                                              : po::value<std::vector<std::string>>();
        const std::string comma = option->letter.empty() ? "" : ",";
        description.add_options()((option->name + comma + option->letter).c_str(), value, "");
    }
    return description;
}

po::parsed_options split_words(const std::vector<std::string>& words, const OptionTable& table) {
    namespace style = po::command_line_style;
    const int allowed = style::allow_long | style::long_allow_adjacent | style::long_allow_next |
                        style::allow_short | style::allow_dash_for_short | style::short_allow_next |
                        style::allow_long_disguise;  // -np, as mpirun has it
    try {
        return po::command_line_parser(words)
            .options(describe(table))
            .style(allowed)
            .allow_unregistered()
            .run();
    } catch (const po::invalid_command_line_syntax& error) {
        const bool has_extra = error.kind() == po::invalid_syntax::extra_parameter;
        throw Error(
            has_extra ? "E103" : "E105",
            fmt::format(
                "{} {}", error.get_option_name(), has_extra ? "takes no value" : "needs a value"),
            "",
            "--help shows what each option takes");
    } catch (const po::error& error) {
        throw Error("E103", error.what(), "", "see --help");
    }
}

void add_option(ParsedLine& line, const po::option& found, const OptionTable& table) {
    const std::string text = found.value.empty() ? "true" : found.value.front();
    const auto [place, is_new] = line.options.emplace(found.string_key, text);
    if (!is_new && find_option(table, found.string_key).kind == OptionKind::list) {
        place->second += "," + text;
        return;
    }
    check(is_new || place->second == text,
          "E104",
          fmt::format("--{} is given twice ('{}' and '{}')", found.string_key, place->second, text),
          "it takes one value",
          "drop one of them");
}

// The only option of which `name` without its dashes is a value; nullptr for none or several.
const Option* only_taker(const std::string& name, const OptionTable& table) {
    const Option* taker = nullptr;
    for (const Option* option : options_of(table)) {
        const auto is_it = [&](const std::string& word) { return "--" + word == name; };
        if (std::ranges::none_of(option->words, is_it)) continue;
        if (taker) return nullptr;
        taker = option;
    }
    return taker;
}

// Names in other programs that are too far from ours for typing errors.
constexpr std::pair<const char*, const char*> other_names[] = {{"--batch-size", "--batch"},
                                                               {"--learning-rate", "--lr"}};

// Returns which of `names` was meant by `word`; "" if none is near. All begin with dashes.
std::string meant_option(const std::string& word, const std::vector<std::string>& names) {
    for (const auto& [other, option] : other_names)
        if (word == other && std::ranges::find(names, option) != names.end()) return option;
    return nearest_name(word, names);
}

Error unknown_option(const std::string& word, const OptionTable& table) {
    const std::string name = word.substr(0, word.find('='));
    if (const Option* const taker = only_taker(name, table))
        return Error("E101",
                     fmt::format("unknown option '{}'", name),
                     fmt::format("it is a value of --{}", taker->name),
                     fmt::format("--{} {}", taker->name, name.substr(2)));
    std::vector<std::string> names = option_names(table);
    names.emplace_back("help");
    for (std::string& known : names) known.insert(0, "--");
    const std::string meant = meant_option(name, names);
    return Error("E101",
                 fmt::format("unknown option '{}'", name),
                 "",
                 meant.empty() ? "see --help" : fmt::format("did you mean '{}'?", meant));
}

constexpr const char* variable_prefix = "LOCKSTEP_";

std::string environment_name(const std::string& option) {
    std::string name = variable_prefix;
    for (const char c : option)
        name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
}

// Variables that are no options, in the form of options: what programs, scripts and tests read, and
// what modules of a cluster set.
constexpr std::string_view other_variables =
    "bin bound build cache cluster container container-runtime cuda-lib dir fuzz-s h5probe home "
    "hostile-files inc include jobs launcher launcher-pid launcher-wait lib machine mpi nccl-lib "
    "on-terminal path prefix program rank-ends root selftest-gpu site-config start-timeout tally "
    "torch torch-cuda-lib version";

// Returns the value of an entry as the command line has it: a list with commas.
std::string option_text(const ConfigEntry& entry) {
    std::string text = config_text(entry.value);
    if (entry.list != ConfigList::none) std::ranges::replace(text, '\n', ',');
    return text;
}

void check_config_type(const Option& option, const ConfigEntry& entry) {
    const std::size_t type = entry.value.index();  // bool, whole, real, text
    const bool is_list = entry.list != ConfigList::none;
    const bool fits = (option.kind == OptionKind::flag && type == 0) ||
                      (option.kind == OptionKind::whole && type == 1) ||
                      (option.kind == OptionKind::real && (type == 1 || type == 2)) ||
                      (option.kind == OptionKind::text && type != 0) ||
                      (option.kind == OptionKind::list && type == 3) ||
                      (option.kind == OptionKind::path && type != 0 && !is_list);
    constexpr const char* needs[] = {
        "true or false", "a whole number", "a number", "a text", "a text or a list", "a text"};
    check(fits,
          "E112",
          fmt::format("{}: {} is {} ({})",
                      entry.origin,
                      option.name,
                      is_list     ? fmt::format("[{}]", option_text(entry))
                      : type == 3 ? fmt::format("\"{}\"", config_text(entry.value))
                                  : config_text(entry.value),
                      is_list ? "a list" : config_type_name(entry.value)),
          fmt::format("it needs {}", needs[static_cast<int>(option.kind)]),
          is_list     ? "give a single value"
          : type == 3 ? "remove the quotes"
                      : "");
}

Error unknown_key(const ConfigEntry& entry,
                  const std::string& key,
                  const std::vector<std::string>& known,
                  const std::string& why,
                  const std::string& usual_fix) {
    return Error("E111",
                 fmt::format("{}: unknown key '{}'", entry.origin, key),
                 why,
                 did_you_mean(key, known, usual_fix));
}

Config read_known_config(const ParsedLine& line,
                         const Environment& environment,
                         const OptionTable& table) {
    const auto given = line.options.find("config");
    const auto path = given != line.options.end() ? std::optional(given->second)
                                                  : environment.text(environment_name("config"));
    if (!path) return {};
    Config config = read_config(*path);
    auto names = option_names(table);
    std::erase(names, "config");  // a file names no other
    for (const auto& [key, entry] : config) {
        if (std::ranges::find(names, key) != names.end()) continue;
        const std::size_t dot = key.rfind('.');
        if (dot != key.npos && std::ranges::find(names, key.substr(dot + 1)) != names.end())
            throw unknown_key(entry,
                              key,
                              {},
                              "a file of --config has no sections",
                              fmt::format("write '{}' above all sections", key.substr(dot + 1)));
        throw unknown_key(entry, key, names, "", "keys are long option names; see --help");
    }
    return config;
}

// All sources that give `option` a value, the strongest first.
std::vector<GivenValue> sources(const Option& option,
                                const ParsedLine& line,
                                const Environment& environment,
                                const std::vector<Config>& configs) {
    std::vector<GivenValue> found;
    if (const auto at = line.options.find(option.name); at != line.options.end())
        found.push_back({at->second, command_line});
    const std::string variable = environment_name(option.name);
    if (const auto text = environment.text(variable)) found.push_back({*text, variable});
    for (const Config& config : configs)
        if (const auto at = config.find(option.name); at != config.end()) {
            check_config_type(option, at->second);
            found.push_back({option_text(at->second), at->second.origin});
        }
    return found;
}

// A variable that cannot be used is a fault of the surroundings, not of the command line.
void assign(const Option& option, const GivenValue& given) {
    if (!given.origin.starts_with(variable_prefix)) return option.assign(given);
    try {
        option.assign(given);
    } catch (const Error& error) {
        throw Error(
            "E113",
            fmt::format("{} is '{}'", given.origin, given.text),
            error.why(),
            fmt::format("unset {}, or set it to what --{} takes", given.origin, option.name));
    }
}

constexpr const char* site_config = "/etc/lockstep/config.toml";

fs::path user_config(const Environment& environment) {
    const fs::path file = "lockstep/config.toml";
    if (const auto folder = environment.text("XDG_CONFIG_HOME"); folder && !folder->empty())
        return *folder / file;
    const auto home = environment.text("HOME").value_or("");
    return home.empty() ? fs::path() : home / (".config" / file);
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
        if (std::ranges::find(known, key) == known.end())
            throw unknown_key(entry,
                              key,
                              known,
                              "options stand in a table with their command's name, such as [train]",
                              "see 'lockstep COMMAND --help'");
}

}  // namespace

ParsedLine parse_line(const std::vector<std::string>& words, const OptionTable& table) {
    ParsedLine line;
    for (const po::option& found : split_words(words, table).options) {
        const std::string word = found.original_tokens.empty() ? "" : found.original_tokens.front();
        if (found.position_key >= 0) {
            line.positionals.push_back(found.value.front());
        } else if (found.unregistered) {
            throw unknown_option(word, table);
        } else if (found.string_key == "help" || word == "-h") {
            line.wants_help = true;
        } else {
            add_option(line, found, table);
        }
    }
    return line;
}

std::vector<ResolvedOption> resolve_options(const OptionTable& table,
                                            const ParsedLine& line,
                                            const Environment& environment,
                                            const std::vector<Config>& standing) {
    std::vector<Config> configs = {read_known_config(line, environment, table)};
    configs.insert(configs.end(), standing.begin(), standing.end());
    std::vector<ResolvedOption> resolved;
    for (const Option* option : options_of(table)) {
        auto found = sources(*option, line, environment, configs);
        if (found.empty()) {
            resolved.push_back({option->name, option->default_value, "default", {}, option->kind});
            continue;
        }
        assign(*option, found.front());
        const GivenValue used = found.front();
        found.erase(found.begin());
        resolved.push_back({option->name, used.text, used.origin, found, option->kind});
    }
    return resolved;
}

std::vector<UnreadVariable> unread_variables(const std::vector<Command>& commands,
                                             const Environment& environment) {
    std::vector<std::string> known = split(other_variables, ' ');
    for (const Command& command : commands)
        std::ranges::move(option_names(command.table), std::back_inserter(known));
    for (std::string& name : known) name.insert(0, "--");
    std::vector<UnreadVariable> unread;
    for (const std::string& name : environment.names_with_prefix(variable_prefix)) {
        std::string option = "--";
        for (const char c : name.substr(std::strlen(variable_prefix)))
            option +=
                c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        const std::string meant = meant_option(option, known);
        if (meant.empty() || environment_name(meant.substr(2)) == name) continue;
        unread.push_back({name, environment_name(meant.substr(2))});
    }
    return unread;
}

std::string options_help(const OptionTable& table) {
    constexpr std::size_t indent = 32, width = 66;
    std::string text;
    for (const OptionSection& section : table) {
        text += fmt::format("\n{}:\n", section.title);
        for (const Option& option : section.options) {
            std::string head = option.letter.empty() ? "  --" : "  -" + option.letter + ", --";
            head += option.name;
            if (!option.value.empty()) head += " " + option.value;
            std::string help = option.help;
            if (option.kind == OptionKind::list) help += "; may be given several times";
            if (!option.default_value.empty() && option.kind != OptionKind::flag)
                help += fmt::format(" [{}]", option.default_value);
            const std::string gap = head.size() + 1 < indent
                                        ? std::string(indent - head.size(), ' ')
                                        : "\n" + std::string(indent, ' ');
            text += head + gap + wrapped(help, indent, width) + "\n";
        }
    }
    return text;
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
