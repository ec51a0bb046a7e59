// SPDX-License-Identifier: Apache-2.0
/// @file
/// Batch scripts made from templates: options replaced, values carried as quoted bash words.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// One option of a \#SBATCH line, by its long name without dashes; no value: a switch.
struct SbatchOption {
    std::string name;
    std::optional<std::string> value;
};

/// In the order of the script.
using SbatchOptions = std::vector<SbatchOption>;

/// The value of `name`, "" for a switch, nothing if it is not there.
std::optional<std::string> value_of(const SbatchOptions& options, std::string_view name);

/// Replaces or adds `name`.
void set_option(SbatchOptions& options, const std::string& name, std::optional<std::string> value);

/// Removes `name`, if it is there.
void remove_option(SbatchOptions& options, std::string_view name);

/// A batch script taken apart at its \#SBATCH lines.
struct JobTemplate {
    std::string name;                  ///< as messages name it
    std::string head;                  ///< lines before the options, with #!
    std::vector<SbatchOptions> parts;  ///< one; more for a heterogeneous job
    std::string body;                  ///< what runs
};

/// Takes `text` apart. Errors: E531 for Windows line ends, no #!, no \#SBATCH line, or a line that
/// is no list of options.
JobTemplate parse_template(const std::string& name, const std::string& text);

/// What a script gets besides its options. All texts may come from users.
struct ScriptSettings {
    std::vector<std::pair<std::string, std::string>> variables;  ///< exported: name, value
    std::vector<std::string> words;  ///< the script's arguments; %a is an array's task number
};

/// `text` as one word that bash reads back unchanged. Errors: E532 naming `what` where `text` has
/// control characters, which would hide lines from readers of the script.
std::string bash_word(const std::string& what, const std::string& text);

/// Whether a line of the body runs `lockstep train`: words after -- are that command's then.
bool trains(const JobTemplate& script);

/// mpirun or srun; none if the script has no such run_ranks line.
Launcher launcher_of(const JobTemplate& script);

/// The whole script. Nothing from `settings` is ever read by bash as anything but a quoted word.
/// Errors: E532.
std::string render_script(const JobTemplate& script, const ScriptSettings& settings);

}  // namespace lockstep
