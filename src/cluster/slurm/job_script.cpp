// SPDX-License-Identifier: Apache-2.0
// A job script is a template of slurm/ with other options and values. The body stays what a person
// wrote:
//
//     #! and comments   head       kept
//     #SBATCH lines     parts      written anew from options
//                       preamble   inserted: variables, which job.sh reads, and words
//     the rest          body       kept
//
// What must never happen: a value becomes code. Variables, paths and words after -- are the user's,
// and may hold quotes, dollars and blanks. Each is one word in single quotes (bash_word), and what
// cannot be quoted, a control character, is refused. The one thing that bash shall expand, the
// number of an array's task, stands between such words.
//
// Tested: cluster/slurm/job_script_test.cpp (any text is carried unchanged), job_request_test.cpp;
// cluster/templates_test.

#include "lockstep/cluster/job_script.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

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

std::string bash_word(const std::string& what, const std::string& text) {
    const auto bad = std::ranges::find_if(text, [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7f;
    });
    check(bad == text.end(), [&] {
        return Error("E532",
                     fmt::format("{} has a control character: '{}'", what, printable(text)),
                     fmt::format("byte {} is 0x{:02x}; a script with it is not what it looks like",
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
