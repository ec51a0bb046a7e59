// SPDX-License-Identifier: Apache-2.0
// What is written about the commands, made from their tables: it can say nothing else than they do.
#pragma once

#include "command.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The sections of `command` that are its own: those of train, which other commands take along, are
/// shown once.
std::vector<OptionSection> own_sections(const Command& command);

/// lockstep(1), in man's macros.
std::string man_page(const std::vector<Command>& commands);

/// docs/reference.md.
std::string reference_page(const std::vector<Command>& commands);

std::string bash_completion(const std::vector<Command>& commands);
std::string zsh_completion(const std::vector<Command>& commands);
std::string fish_completion(const std::vector<Command>& commands);

/// Writes them below `folder` as an installation's share/ has them, and reference.md; returns their
/// paths. Errors: E407 where `folder` holds files, those of writing.
std::vector<std::string> write_manual(const std::vector<Command>& commands,
                                      const std::filesystem::path& folder);

}  // namespace lockstep
