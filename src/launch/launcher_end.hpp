// SPDX-License-Identifier: Apache-2.0
// What it means if the launcher itself, not a rank, ends a launch.
#pragma once

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// Whether a launch's ranks trained when it ended; unknown: they leave no sign of it.
enum class RanksStage { unknown, not_begun, begun };

/// Whether an exit code of mpirun's can be the ranks': mpirun passes on theirs, 128 + signal for
/// one that a signal ended. It has 1, and what its negative error numbers leave of a byte, for
/// itself.
bool is_exit_code_of_ranks(int code);

/// For a code that is none of theirs. E697 unless ranks have begun, else E612 with `next_start`,
/// which says what the same command does next.
Error launcher_failed(int code, RanksStage stage, std::string next_start);

/// For a launcher that `signal` ended, which is not what ends a rank. The same codes.
Error launcher_crashed(int signal, RanksStage stage, std::string next_start);

/// The settings that users and sites give Open MPI: what is set in the environment, and the lines
/// of the user's own files below `home`. "" if there are none.
struct MpiSettings {
    std::string variables;  ///< names, with blanks
    std::string lines;      ///< "a = b, c = d"
    std::string files;      ///< of those lines, with blanks
};
MpiSettings mpi_settings(const Environment& environment, const std::filesystem::path& home);

/// Readies this process for an mpirun as its child. Takes away what other launches left in the
/// environment, and gives it a home if neither a variable nor the password file has one. Errors:
/// E697 for a host name that Open MPI 4 does not survive.
void ready_for_mpirun();

}  // namespace lockstep
