// SPDX-License-Identifier: Apache-2.0
/// @file
/// Commands that make usable weights of files that are not.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// A command that makes safetensors of the file at `path`, which begins with `start`; "" where none
/// is known.
std::string way_to_safetensors(std::string_view start, const std::filesystem::path& path);

/// The command that exports the run which `path`, one of its files or folders, belongs to: with
/// RUN in place of a name where no folder above `path` is a run.
std::string export_command(const std::filesystem::path& path);

/// Errors: E206 where `path` is a folder, naming the command that makes a file of a run.
void check_is_weights_file(const std::filesystem::path& path);

/// How the file's names differ from the model's.
struct Renaming {
    std::string prefix;          ///< "module."; "": they do not differ by one
    bool is_in_the_file = true;  ///< else in the model
};

/// The prefix that makes names of `unexpected`, which only the file has, of most of `missing`,
/// which only the model has, or the other way round.
Renaming renaming_between(std::span<const std::string> missing,
                          std::span<const std::string> unexpected);

/// A command for Python alone that writes the file at `path` with the model's names.
std::string rename_command(const Renaming& renaming, const std::filesystem::path& path);

}  // namespace lockstep
