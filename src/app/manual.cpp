// SPDX-License-Identifier: Apache-2.0
#include "manual.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/run/text_table.hpp"

#include "option_groups.hpp"

#include <algorithm>
#include <cctype>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// Roff reads a line that begins with one of these as a request, and a backslash as its own.
std::string roff(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool begins_line = i == 0 || text[i - 1] == '\n';
        if (begins_line && (text[i] == '.' || text[i] == '\'')) out += "\\&";
        if (text[i] == '\\')
            out += "\\e";
        else if (text[i] == '-')
            out += "\\-";
        else
            out += text[i];
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
    std::vector<std::string> shown;
    for (const OptionSection& section : train_command().table) shown.push_back(section.title);
    std::vector<OptionSection> own;
    for (const OptionSection& section : command.table)
        if (std::ranges::find(shown, section.title) == shown.end()) own.push_back(section);
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

std::string man_exit_codes() {
    std::string text;
    for (const ExitMeaning& exit : exit_meanings)
        text += fmt::format(
            ".TP\n{}\n{}\n", static_cast<int>(exit.code), roff(std::string(exit.meaning)));
    return text;
}

std::string reference_exit_codes() {
    std::string text = "\n## Exit codes\n| code | meaning | another start |\n|---|---|---|\n";
    for (const ExitMeaning& exit : exit_meanings)
        text += fmt::format(
            "| {} | {} | {} |\n", static_cast<int>(exit.code), exit.meaning, exit.next_start);
    return text + "| 128 + n | killed by signal n | goes on from the newest checkpoint |\n";
}

std::string man_page(const std::vector<Command>& commands) {
    std::string text = fmt::format(
        ".TH LOCKSTEP 1 \"\" \"Lockstep {}\" \"User Commands\"\n.SH NAME\n"
        "lockstep \\- train a LibTorch model on any number of MPI ranks, with the same bits\n"
        ".SH SYNOPSIS\n.B lockstep\nCOMMAND [options]\n.SH COMMANDS\n",
        roff(std::string(version_text())));
    for (const Command& command : commands) {
        if (command.is_hidden) continue;
        const auto own = own_sections(command);
        text += fmt::format(".SS lockstep {}\n{}.\n.P\n.nf\n{}\n\n{}.fi\n",
                            roff(command.name),
                            roff(command.summary),
                            roff(command.usage),
                            roff(command.text));
        for (const OptionSection& section : own) text += man_options(section);
        if (own.size() < command.table.size()) text += ".P\nAnd the options of train.\n";
    }
    return text + man_end + man_exit_codes();
}

std::string reference_page(const std::vector<Command>& commands) {
    const OptionTable train = train_command().table;
    std::string text = reference_begin;
    for (const Command& command : commands)
        if (!command.is_hidden) text += reference_command(command, train);
    return text + reference_groups(commands) + reference_exit_codes();
}

// A prefix's share/ has folders alone; a run, a data set or a home has files.
void check_holds_no_files(const fs::path& folder) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
        check(!entry.is_regular_file(none), [&] {
            return Error(
                "E407",
                fmt::format("'{}' holds other files, such as '{}'",
                            folder.string(),
                            entry.path().filename().string()),
                "'lockstep generate-manual' writes Lockstep's own manual page, completions and "
                "reference",
                "name a folder that is new or has only folders in it");
        });
}

}  // namespace

std::vector<std::string> write_manual(const std::vector<Command>& commands,
                                      const fs::path& folder) {
    check_holds_no_files(folder);
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
