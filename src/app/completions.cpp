// SPDX-License-Identifier: Apache-2.0
// The completions of shells: commands, their options, and the values of options with a few words.
#include "lockstep/run/text_table.hpp"

#include "manual.hpp"

#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// The first words of commands; for a group, its second words.
std::map<std::string, std::set<std::string>> command_words(const std::vector<Command>& commands) {
    std::map<std::string, std::set<std::string>> words;
    for (const Command& command : commands) {
        if (command.is_hidden) continue;
        const auto space = command.name.find(' ');
        auto& second = words[command.name.substr(0, space)];
        if (space != command.name.npos) second.insert(command.name.substr(space + 1));
    }
    return words;
}

// --min-bytes and -b.
std::vector<std::string> spellings(const Option& option) {
    std::vector<std::string> found = {"--" + option.name};
    if (!option.letter.empty()) found.push_back("-" + option.letter);
    return found;
}

bool takes_files(const Option& option) {
    return option.kind == OptionKind::path ||
           (option.kind == OptionKind::list && option.value.find("FILE") != std::string::npos);
}

// For bash and zsh.
std::string shell_quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

// fish knows \' within single quotes.
std::string fish_quoted(const std::string& text) {
    return "'" + backslashed(text, "'\\") + "'";
}

std::string fish_option(const Command& command, const Option& option) {
    std::string line = fmt::format("complete -c lockstep -n {} -l {}",
                                   fish_quoted("__lockstep_is " + command.name),
                                   option.name);
    if (!option.letter.empty()) line += " -s " + option.letter;
    if (!option.words.empty())
        line +=
            fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(option.words, " "))));
    else if (takes_files(option))
        line += " -r -F";
    else if (option.kind != OptionKind::flag)
        line += " -x";
    return line + " -d " + fish_quoted(option.help) + "\n";
}

std::string zsh_option(const Option& option, const std::string& spelling) {
    std::string spec = spelling + "[" + backslashed(option.help, "[]\\") + "]";
    if (option.kind == OptionKind::list) spec = "*" + spec;
    if (!option.words.empty())
        spec += fmt::format(":word:({})", fmt::join(option.words, " "));
    else if (takes_files(option))
        spec += ":file:_files";
    else if (option.kind != OptionKind::flag)
        spec += ":value: ";
    return shell_quoted(spec);
}

constexpr const char* bash_function = R"sh(
_lockstep() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local first=${COMP_WORDS[1]-} second=${COMP_WORDS[2]-} command words
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$(_lockstep_words '')" -- "$current")
        return
    fi
    words=$(_lockstep_words "$first")
    if ((COMP_CWORD == 2)) && [[ -n $words && $current != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
        return
    fi
    command=$first
    [[ -z $words ]] || command="$first $second"
    words=$(_lockstep_values "$command $before")
    if [[ -z $words && $current == -* ]]; then words=$(_lockstep_options "$command"); fi
    [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _lockstep lockstep
)sh";

constexpr const char* fish_function = R"sh(
function __lockstep_is
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"; or return 1
    test (count $argv) -lt 2; or test "$words[3]" = "$argv[2]"
end
function __lockstep_is_at
    test (count (commandline -opc)) -eq $argv[1]
end
complete -c lockstep -f
)sh";

// One branch of a bash `case` that prints words.
std::string bash_branch(const std::string& pattern, const std::vector<std::string>& words) {
    return fmt::format("        {}) echo {} ;;\n",
                       shell_quoted(pattern),
                       shell_quoted(fmt::format("{}", fmt::join(words, " "))));
}

}  // namespace

std::string bash_completion(const std::vector<Command>& commands) {
    std::string words, options, values;
    std::vector<std::string> first;
    for (const auto& [word, below] : command_words(commands)) {
        first.push_back(word);
        if (!below.empty()) words += bash_branch(word, {below.begin(), below.end()});
    }
    for (const Command& command : commands) {
        std::vector<std::string> names = {"--help"};
        for (const Option* option : options_of(command.table))
            for (const std::string& spelling : spellings(*option)) {
                names.push_back(spelling);
                if (!option->words.empty())
                    values += bash_branch(command.name + " " + spelling, option->words);
            }
        if (!command.is_hidden) options += bash_branch(command.name, names);
    }
    constexpr const char* begin = "() {\n    case $1 in\n";
    constexpr const char* end = "    esac\n}\n";
    return "# bash completion for lockstep, made by 'lockstep generate-manual'\n\n_lockstep_words" +
           std::string(begin) + bash_branch("", first) + words + end + "_lockstep_options" + begin +
           options + end + "_lockstep_values" + begin + values + end + bash_function;
}

std::string zsh_completion(const std::vector<Command>& commands) {
    std::string first, groups, branches;
    for (const auto& [word, below] : command_words(commands)) {
        first += " " + word;
        if (!below.empty())
            groups += fmt::format(
                "    {})\n        if ((CURRENT == 3)); then compadd {}; return; fi\n"
                "        command=\"$words[2] $words[3]\"; skip=3 ;;\n",
                word,
                fmt::join(below, " "));
    }
    for (const Command& command : commands) {
        if (command.is_hidden) continue;
        branches += fmt::format("    {})\n        _arguments", shell_quoted(command.name));
        for (const Option* option : options_of(command.table))
            for (const std::string& spelling : spellings(*option))
                branches += " \\\n            " + zsh_option(*option, spelling);
        branches += " \\\n            '*:file:_files' ;;\n";
    }
    return "#compdef lockstep\n# made by 'lockstep generate-manual'\n\n"
           "local command=$words[2] skip=2\n"
           "if ((CURRENT == 2)); then compadd" +
           first + "; return; fi\ncase $words[2] in\n" + groups +
           "esac\nshift $((skip - 1)) words\n((CURRENT -= skip - 1))\ncase $command in\n" +
           branches + "esac\n";
}

std::string fish_completion(const std::vector<Command>& commands) {
    std::string text = "# fish completion for lockstep, made by 'lockstep generate-manual'\n";
    text += fish_function;
    for (const auto& [word, below] : command_words(commands)) {
        text += fmt::format("complete -c lockstep -n '__lockstep_is_at 1' -a {}\n", word);
        for (const std::string& second : below)
            text += fmt::format(
                "complete -c lockstep -n '__lockstep_is {}; and __lockstep_is_at 2' -a {}\n",
                word,
                second);
    }
    for (const Command& command : commands) {
        if (command.is_hidden) continue;
        text += fmt::format(
            "complete -c lockstep -n {} -F\n",
            fish_quoted("__lockstep_is " + command.name + "; and not __lockstep_is_at 1"));
        for (const Option* option : options_of(command.table))
            text += fish_option(command, *option);
    }
    return text;
}

}  // namespace lockstep
