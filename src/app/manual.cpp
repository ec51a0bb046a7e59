// SPDX-License-Identifier: Apache-2.0
// The completions of shells, the manual page and the reference, all from the commands' tables.
#include "lockstep/core/version.hpp"
#include "lockstep/run/text_table.hpp"

#include "option_groups.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// The first words of commands; for a group, its second words.
std::map<std::string, std::set<std::string>> command_words(const std::vector<Command>& commands) {
    std::map<std::string, std::set<std::string>> words;
    for (const Command& command : commands) {
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
        options += bash_branch(command.name, names);
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
        text += fmt::format(
            "complete -c lockstep -n {} -F\n",
            fish_quoted("__lockstep_is " + command.name + "; and not __lockstep_is_at 1"));
        for (const Option* option : options_of(command.table))
            text += fish_option(command, *option);
    }
    return text;
}

// Roff reads a line that begins with one of these as a request, and a backslash as its own.
std::string roff(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool begins_line = i == 0 || text[i - 1] == '\n';
        if (begins_line && (text[i] == '.' || text[i] == '\'')) out += "\\&";
        out += text[i] == '\\' ? "\\e" : text[i] == '-' ? "\\-" : std::string(1, text[i]);
    }
    return out;
}

std::string head_of(const Option& option) {
    const std::string letter = option.letter.empty() ? "" : "-" + option.letter + ", ";
    return letter + "--" + option.name + (option.value.empty() ? "" : " " + option.value);
}

std::string help_of(const Option& option) {
    return option.help + (option.kind == OptionKind::list ? "; may be given several times" : "") +
           (option.range.empty() ? "" : "; " + option.range);
}

bool shows_default(const Option& option) {
    return !option.default_value.empty() && option.kind != OptionKind::flag;
}

std::string man_options(const OptionSection& section) {
    std::string text = fmt::format(".P\n{}:\n", roff(section.title));
    for (const Option& option : section.options)
        text += fmt::format(".TP\n.B {}\n{}{}\n",
                            roff(head_of(option)),
                            roff(help_of(option)),
                            shows_default(option) ? roff(" [" + option.default_value + "]") : "");
    return text;
}

std::string code_cell(const std::string& text) {
    return "`" + backslashed(text, "|") + "`";
}

std::string reference_options(const OptionSection& section, const std::string& heading) {
    constexpr const char* scopes[] = {"", "shared", "bits", "bits of a cosine"};
    const bool has_scopes = std::ranges::any_of(
        section.options, [](const Option& o) { return o.scope != OptionScope::own; });
    std::string text = fmt::format("\n{}\n\n| option | default |{} |\n|---|---|{}---|\n",
                                   heading,
                                   has_scopes ? " scope |" : "",
                                   has_scopes ? "---|" : "");
    for (const Option& option : section.options)
        text += fmt::format(
            "| {} | {} |{} {} |\n",
            code_cell(head_of(option)),
            shows_default(option) ? code_cell(option.default_value) : "",
            has_scopes ? fmt::format(" {} |", scopes[static_cast<std::size_t>(option.scope)]) : "",
            backslashed(help_of(option), "|<*_"));
    return text;
}

bool is_group(const OptionSection& section) {
    return std::ranges::find(group_titles, section.title) != group_titles.end();
}

// Where a heading of the page is found.
std::string anchor(const std::string& heading) {
    std::string out;
    for (const char c : heading) {
        const auto letter = static_cast<unsigned char>(c);
        if (std::isalnum(letter)) out += static_cast<char>(std::tolower(letter));
        if (c == ' ') out += '-';
    }
    return out;
}

// A row of the table of train that another command takes as it is.
bool is_of_train(const Option& option, const OptionTable& train) {
    return std::ranges::any_of(options_of(train), [&](const Option* each) {
        return each->name == option.name && each->value == option.value &&
               each->help == option.help;
    });
}

// The sections of `command` without those of train that other commands also take, which are shown
// once.
std::vector<OptionSection> own_sections(const Command& command) {
    if (command.name == train_command().name) return command.table;
    const OptionTable train = train_command().table;
    std::vector<OptionSection> own = command.table;
    std::erase_if(own, [&](const OptionSection& section) {
        return std::ranges::find(train, section.title, &OptionSection::title) != train.end();
    });
    return own;
}

// The options of a command that the page has elsewhere.
std::string reference_links(const Command& command, const OptionTable& train) {
    std::vector<std::string> groups, of_train;
    const auto own = own_sections(command);
    for (const OptionSection& section : own) {
        if (is_group(section))
            groups.push_back(fmt::format("[{}](#{})", section.title, anchor(section.title)));
        else
            for (const Option& option : section.options)
                if (is_of_train(option, train)) of_train.push_back("`--" + option.name + "`");
    }
    std::string text;
    if (own.size() < command.table.size())
        text += "\nAnd the options of [`train`](#lockstep-train).\n";
    else if (!of_train.empty() && command.name != train_command().name)
        text += fmt::format("\nAnd from the options of [`train`](#lockstep-train): {}.\n",
                            fmt::join(of_train, ", "));
    if (!groups.empty())
        text += fmt::format("\nAnd shared options: {}.\n", fmt::join(groups, ", "));
    return text;
}

std::string reference_command(const Command& command, const OptionTable& train) {
    std::string text = fmt::format("\n## `lockstep {}`\n{}.\n```\n{}\n\n{}```\n",
                                   command.name,
                                   command.summary,
                                   command.usage,
                                   command.text);
    for (OptionSection& section : own_sections(command)) {
        if (command.name != train_command().name)
            std::erase_if(section.options,
                          [&](const Option& option) { return is_of_train(option, train); });
        if (!is_group(section) && !section.options.empty())
            text += reference_options(section, "**" + section.title + "**");
    }
    return text + reference_links(command, train);
}

// Each group as the first command has it; the test of commands shows that all have it so.
std::string reference_groups(const std::vector<Command>& commands) {
    std::string text = "\n## Options that several commands share\n";
    for (const std::string_view title : group_titles)
        for (const Command& command : commands) {
            const auto found = std::ranges::find(command.table, title, &OptionSection::title);
            if (found == command.table.end()) continue;
            text += reference_options(*found, "### " + found->title);
            break;
        }
    return text;
}

constexpr const char* reference_begin =
    R"(# Reference: every command, every option

Made by `lockstep generate-manual` from the tables that the commands are parsed with; a test fails where
this page is stale.

An option may be given as `--name value` or `--name=value`, as a variable `LOCKSTEP_NAME`, or in a
file. The first that gives it wins: command line, variable, file of `--config`,
`~/.config/lockstep/config.toml`, `/etc/lockstep/config.toml`, default. In the last two files
options stand in a table with their command's name, such as `[train]` or `[bench.comm]`; commands
that take the options of `train` along read `[train]`, too. `$XDG_CONFIG_HOME` moves the user's,
`$LOCKSTEP_SITE_CONFIG` names another than the site's (empty: none). `lockstep config show --origin`
says where each value of `train` came from.

Scope: *bits*, another value gives a run other bits, so it is fixed when the run is created; *bits
of a cosine*, the same where the schedule has an end; *shared*, free to change on resume, but all
ranks must have the same; none of them: each rank's own.
)";

constexpr const char* man_end =
    R"(.SH ENVIRONMENT
.TP
.B LOCKSTEP_NAME
the option \-\-name of any command, with _ for \-
.TP
.B XDG_CONFIG_HOME, LOCKSTEP_SITE_CONFIG
where a user's, and which file is a site's configuration
.SH FILES
.TP
.I ~/.config/lockstep/config.toml
a user's defaults: options in a table with their command's name, such as [train]
.TP
.I /etc/lockstep/config.toml
a site's, weaker than a user's
.SH EXIT STATUS
.B lockstep explain CODE
tells more of each, and of an error.
)";

std::string man_page(const std::vector<Command>& commands) {
    std::string text = fmt::format(
        ".TH LOCKSTEP 1 \"\" \"Lockstep {}\" \"User Commands\"\n.SH NAME\n"
        "lockstep \\- train a LibTorch model on any number of MPI ranks, with the same bits\n"
        ".SH SYNOPSIS\n.B lockstep\nCOMMAND [options]\n.SH COMMANDS\n",
        roff(std::string(version_text())));
    for (const Command& command : commands) {
        const auto own = own_sections(command);
        text += fmt::format(".SS lockstep {}\n{}.\n.P\n.nf\n{}\n\n{}.fi\n",
                            roff(command.name),
                            roff(command.summary),
                            roff(command.usage),
                            roff(command.text));
        for (const OptionSection& section : own) text += man_options(section);
        if (own.size() < command.table.size()) text += ".P\nAnd the options of train.\n";
    }
    text += man_end;
    for (const ExitMeaning& exit : exit_meanings)
        text += fmt::format(
            ".TP\n{}\n{}\n", static_cast<int>(exit.code), roff(std::string(exit.meaning)));
    return text;
}

std::string reference_page(const std::vector<Command>& commands) {
    const OptionTable train = train_command().table;
    std::string text = reference_begin;
    for (const Command& command : commands) text += reference_command(command, train);
    text += reference_groups(commands);
    text += "\n## Exit codes\n| code | meaning | another start |\n|---|---|---|\n";
    for (const ExitMeaning& exit : exit_meanings)
        text += fmt::format(
            "| {} | {} | {} |\n", static_cast<int>(exit.code), exit.meaning, exit.next_start);
    return text + "| 128 + n | killed by signal n | goes on from the newest checkpoint |\n";
}

// A prefix's share/ has folders alone; a run, a data set or a home has files.
void check_holds_no_files(const fs::path& folder) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
        check(!entry.is_regular_file(none),
              "E407",
              fmt::format("'{}' holds other files, such as '{}'",
                          folder.string(),
                          entry.path().filename().string()),
              "'lockstep generate-manual' writes Lockstep's own manual page, completions and "
              "reference",
              "name a folder that is new or has only folders in it");
}

}  // namespace

std::vector<std::string> write_manual(std::vector<Command> commands, const fs::path& folder) {
    check_holds_no_files(folder);
    std::erase_if(commands, [](const Command& command) { return command.is_hidden; });
    std::vector<std::string> written;
    const auto write = [&](const char* place, const std::string& text) {
        make_directories((folder / place).parent_path());
        write_file_atomically(folder / place, text);
        written.push_back((folder / place).string());
    };
    write("man/man1/lockstep.1", man_page(commands));
    write("bash-completion/completions/lockstep", bash_completion(commands));
    write("zsh/site-functions/_lockstep", zsh_completion(commands));
    write("fish/vendor_completions.d/lockstep.fish", fish_completion(commands));
    write("doc/lockstep/reference.md", reference_page(commands));
    return written;
}

}  // namespace lockstep
