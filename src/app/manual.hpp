// SPDX-License-Identifier: Apache-2.0
// Manual pages of the commands, made from their tables, so that they always agree.
#pragma once

#include "command.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

std::string bash_completion(const std::vector<Command>& commands);
std::string zsh_completion(const std::vector<Command>& commands);
std::string fish_completion(const std::vector<Command>& commands);

/// Writes them below `folder` in the layout of an installation's share/, and reference.md; returns
/// their paths. Errors: E407 if `folder` holds files, those of writing.
std::vector<std::string> write_manual(const std::vector<Command>& commands, const fs::path& folder);

}  // namespace lockstep
