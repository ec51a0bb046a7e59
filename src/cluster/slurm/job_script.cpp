// SPDX-License-Identifier: Apache-2.0
// A job script is a template of slurm/ with other options and values. The body stays what a person
// wrote; four places of it are known:
//
//     #! and comments                       head       kept
//     #SBATCH lines                         parts      written anew from options
//                                           preamble   inserted: modules, variables, words
//     run_ranks mpirun lockstep train ...   body       launcher and container in this line
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
    for (const std::string& module : settings.modules)
        text += fmt::format("module load {} || exit 66\n", bash_word("a module", module));
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

// Where the program's name begins in the run_ranks line at `from`, or npos.
std::size_t program_at(const std::string& body, std::size_t from) {
    const auto end = body.find("\n\n", from);
    const auto at = body.find("lockstep ", from);
    return at < end ? at : body.npos;
}

std::string container_prefix(const ScriptSettings& settings) {
    const std::string image = bash_word("the image", settings.image);
    if (settings.container == ContainerRuntime::apptainer)
        return fmt::format("apptainer exec {}--bind \"$root,$PWD\" {} ",
                           settings.image_sees_gpus ? "--nv " : "",
                           image);
    return fmt::format(
        "--container-image={} --container-mounts=\"$root:$root,$PWD:$PWD\" "
        "--container-workdir=\"$PWD\" ",
        image);
}

std::string with_container(std::string body, const ScriptSettings& settings) {
    if (settings.container == ContainerRuntime::none) return body;
    const auto line = body.find(run_ranks);
    const auto program = line == body.npos ? line : program_at(body, line);
    check(program != body.npos, [&] {
        return Error("E531",
                     "this template cannot be put into a container",
                     "it has no line 'run_ranks mpirun lockstep ...'",
                     "take one of slurm/, for example --template multi-node-srun");
    });
    // A template that has a container already takes the image from IMAGE.
    const bool has_container = body.substr(line, program - line).find(" exec ") != body.npos;
    return has_container ? body : body.insert(program, container_prefix(settings));
}

std::string with_launcher(std::string body, const ScriptSettings& settings, std::size_t parts) {
    const auto line = body.find(run_ranks);
    if (line == body.npos) {
        check(settings.launcher == Launcher::none && parts == 1, [] {
            return Error("E531",
                         "this template does not say how ranks are started",
                         "it has no line 'run_ranks mpirun lockstep ...'",
                         "take one of slurm/, or drop --launcher and --het-partition");
        });
        return body;
    }
    const auto word = line + run_ranks.size();
    const auto end = body.find(' ', word);
    const bool spans = body.compare(end, 14, " --het-group=0") == 0;
    std::string launcher = settings.launcher == Launcher::none
                               ? body.substr(word, end - word)
                               : std::string(launcher_name(settings.launcher));
    if (parts > 1 && !spans) launcher += " --het-group=0,1";
    return body.replace(word, end - word, launcher);
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
    return script.head + options_text(script.parts) + preamble(settings, is_array) +
           with_container(with_launcher(script.body, settings, script.parts.size()), settings);
}

}  // namespace lockstep
