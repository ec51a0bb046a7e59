// SPDX-License-Identifier: Apache-2.0
// A job script is a template of slurm/ with other options and values. The body stays unchanged:
//
//     #! and comments   head       kept
//     #SBATCH lines     parts      written anew from options
//                       preamble   inserted: variables, which job.sh reads, and words
//     the rest          body       kept
//
// What must never happen: a value becomes code. Variables, paths and words after -- are the user's,
// and may hold quotes, dollars and blanks. Each is one word in single quotes (bash_word), and
// control characters, which cannot be quoted, are refused. The only text that bash expands, the
// number of an array's task, stands between such words.
//
// Tested: cluster/slurm/job_request_test.cpp (any text is carried unchanged);
// cluster/templates_test.
#include "lockstep/cluster/job_request.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::string_view mark = "#SBATCH";

Error bad_template(const std::string& name, const std::string& why, const std::string& fix) {
    return Error("E531", fmt::format("template '{}' cannot be used", name), why, fix);
}

// sbatch's short options that have a long name.
std::string long_name(char letter) {
    constexpr auto names = std::to_array<std::pair<char, const char*>>({{'A', "account"},
                                                                        {'a', "array"},
                                                                        {'C', "constraint"},
                                                                        {'c', "cpus-per-task"},
                                                                        {'d', "dependency"},
                                                                        {'e', "error"},
                                                                        {'J', "job-name"},
                                                                        {'L', "licenses"},
                                                                        {'N', "nodes"},
                                                                        {'n', "ntasks"},
                                                                        {'o', "output"},
                                                                        {'p', "partition"},
                                                                        {'q', "qos"},
                                                                        {'t', "time"},
                                                                        {'w', "nodelist"},
                                                                        {'x', "exclude"}});
    const auto found = std::ranges::find(names, letter, &std::pair<char, const char*>::first);
    return found == names.end() ? "" : found->second;
}

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word && word[0] != '#';) words.push_back(word);
    return words;
}

// One word that begins with a dash; its value may be the next word.
SbatchOption read_option(const std::string& word) {
    if (word.starts_with("--")) {
        const auto equals = word.find('=');
        if (equals == word.npos) return {word.substr(2), std::nullopt};
        return {word.substr(2, equals - 2), word.substr(equals + 1)};
    }
    const std::string name = word.size() > 1 ? long_name(word[1]) : "";
    if (word.size() == 2) return {name, std::nullopt};
    return {name, word.substr(2)};
}

void read_options(const std::string& name, const std::string& line, SbatchOptions& options) {
    const auto words = words_of(line.substr(mark.size()));
    for (std::size_t i = 0; i < words.size(); ++i) {
        SbatchOption option;
        if (words[i].starts_with('-')) option = read_option(words[i]);
        check(!option.name.empty(), [&] {
            return bad_template(name,
                                fmt::format("'{}' has no option that is known", line),
                                "write options as #SBATCH --name=value");
        });
        const bool has_next = i + 1 < words.size() && !words[i + 1].starts_with('-');
        if (!option.value && has_next) option.value = words[++i];
        set_option(options, option.name, option.value);
    }
}

void check_form(const std::string& name, const std::string& text) {
    check(text.find('\r') == text.npos, [&] {
        return bad_template(
            name, "it has Windows line ends", fmt::format("sed -i 's/\\r$//' {}", name));
    });
    check(text.starts_with("#!"), [&] {
        return bad_template(
            name, "its first line does not name a shell", "begin it with #!/usr/bin/env bash");
    });
    check(text.find('\0') == text.npos,
          [&] { return bad_template(name, "it has zero bytes", "give a text file"); });
}

constexpr std::string_view run_ranks = "\nrun_ranks ";

std::string options_text(const std::vector<SbatchOptions>& parts) {
    std::string text;
    for (const SbatchOptions& options : parts) {
        if (&options != &parts.front()) text += "#SBATCH hetjob\n";
        for (const SbatchOption& option : options)
            text += option.value ? fmt::format("#SBATCH --{}={}\n", option.name, *option.value)
                                 : fmt::format("#SBATCH --{}\n", option.name);
    }
    return text;
}

// 'x%ay' becomes 'x'"$SLURM_ARRAY_TASK_ID"'y'.
std::string argument(const std::string& word) {
    const auto at = word.find("%a");
    if (at == word.npos) return bash_word("a word after --", word);
    return bash_word("a word after --", word.substr(0, at)) + "\"$SLURM_ARRAY_TASK_ID\"" +
           argument(word.substr(at + 2));
}

std::string preamble(const ScriptSettings& settings, bool is_array) {
    std::string text;
    for (const auto& [name, value] : settings.variables) {
        text += fmt::format("export {}={}", name, bash_word(name, value));
        // Tasks of an array must not share a run.
        text += name == "RUN" && is_array ? "/task-\"$SLURM_ARRAY_TASK_ID\"\n" : "\n";
    }
    if (!settings.words.empty()) text += "set --";
    for (const std::string& word : settings.words)
        text += " " + (is_array ? argument(word) : bash_word("a word after --", word));
    return text + (settings.words.empty() ? "" : "\n");
}

}  // namespace

std::optional<std::string> value_of(const SbatchOptions& options, std::string_view name) {
    const auto found = std::ranges::find(options, name, &SbatchOption::name);
    if (found == options.end()) return std::nullopt;
    return found->value.value_or("");
}

void set_option(SbatchOptions& options, const std::string& name, std::optional<std::string> value) {
    const auto found = std::ranges::find(options, name, &SbatchOption::name);
    if (found == options.end())
        options.push_back({name, std::move(value)});
    else
        found->value = std::move(value);
}

void remove_option(SbatchOptions& options, std::string_view name) {
    std::erase_if(options, [&](const SbatchOption& option) { return option.name == name; });
}

JobTemplate parse_template(const std::string& name, const std::string& text) {
    check_form(name, text);
    JobTemplate script{.head = {}, .parts = {{}}, .body = {}};
    std::istringstream lines(text);
    bool has_options = false, has_begun = false;  // sbatch stops at the first command
    for (std::string line; std::getline(lines, line);) {
        has_begun = has_begun || !(line.empty() || line[0] == '#');
        const bool is_option = !has_begun && line.starts_with(mark);
        if (is_option && words_of(line.substr(mark.size())) == std::vector<std::string>{"hetjob"})
            script.parts.emplace_back();
        else if (is_option)
            read_options(name, line, script.parts.back());
        else
            (has_options ? script.body : script.head) += line + "\n";
        has_options = has_options || is_option;
    }
    check(has_options,
          [&] { return bad_template(name, "it has no #SBATCH line", "see slurm/README.md"); });
    return script;
}

bool trains(const JobTemplate& script) {
    constexpr std::array<std::string_view, 2> command{"lockstep", "train"};
    std::istringstream lines(script.body);
    for (std::string line; std::getline(lines, line);) {
        const std::vector<std::string> words = words_of(line);
        if (!std::ranges::search(words, command).empty()) return true;
    }
    return false;
}

std::string bash_word(const std::string& what, const std::string& text) {
    const auto bad = std::ranges::find_if(text, [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7f;
    });
    check(bad == text.end(), [&] {
        return Error("E532",
                     fmt::format("{} has a control character: '{}'", what, printable(text)),
                     fmt::format("byte {} is 0x{:02x}, which is not visible in a script",
                                 bad - text.begin(),
                                 static_cast<unsigned char>(*bad)),
                     "leave out line ends and other control characters");
    });
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
    return word + "'";
}

Launcher launcher_of(const JobTemplate& script) {
    const auto line = script.body.find(run_ranks);
    if (line == script.body.npos) return Launcher::none;
    const std::string_view rest = std::string_view(script.body).substr(line + run_ranks.size());
    const auto word = rest.substr(0, rest.find(' '));
    for (const Launcher launcher : {Launcher::mpirun, Launcher::srun})
        if (word == launcher_name(launcher)) return launcher;
    return Launcher::none;
}

std::string render_script(const JobTemplate& script, const ScriptSettings& settings) {
    const bool is_array = value_of(script.parts.front(), "array").has_value();
    return script.head + options_text(script.parts) + preamble(settings, is_array) + script.body;
}

}  // namespace lockstep
