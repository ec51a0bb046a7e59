// SPDX-License-Identifier: Apache-2.0
// Manual pages of the commands, made from their tables, so that they always agree.
#pragma once

#include "command.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the sections of `command` without those of train that other commands also take, which
/// are shown once.
std::vector<OptionSection> own_sections(const Command& command);

/// Returns lockstep(1), in man's macros.
std::string man_page(const std::vector<Command>& commands);

/// Returns docs/reference.md.
std::string reference_page(const std::vector<Command>& commands);

std::string bash_completion(const std::vector<Command>& commands);
std::string zsh_completion(const std::vector<Command>& commands);
std::string fish_completion(const std::vector<Command>& commands);

/// Writes them below `folder` in the layout of an installation's share/, and reference.md; returns
/// their paths. Errors: E407 if `folder` holds files, those of writing.
std::vector<std::string> write_manual(const std::vector<Command>& commands, const fs::path& folder);

}  // namespace lockstep
