// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_script.hpp"
#include "lockstep/core/error.hpp"

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
    JobTemplate script{.name = name, .head = {}, .parts = {{}}, .body = {}};
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

}  // namespace lockstep
