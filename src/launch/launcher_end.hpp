// SPDX-License-Identifier: Apache-2.0
// The meaning of an end of a launch by the launcher itself, not by a rank.
#pragma once

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// Progress of a launch's ranks when it ended; unknown: they leave no record of it.
enum class RanksStage { unknown, not_begun, begun };

/// Returns true if an exit code of mpirun can be that of ranks: mpirun passes theirs on, 128 +
/// signal for one that a signal ended. Its own codes are 1 and the low byte of its negative error
/// numbers.
bool is_exit_code_of_ranks(int code);

/// Returns the error for a code that is none of theirs: E697 unless ranks have begun, else E612
/// with `next_start`, the effect of the same command.
Error launcher_failed(int code, RanksStage stage, std::string next_start);

/// Returns the error for a launcher that `signal` ended, which is not the end of a rank. The same
/// codes.
Error launcher_crashed(int signal, RanksStage stage, std::string next_start);

/// The settings that users and sites give Open MPI: variables in the environment, and the lines of
/// the user's own files below `home`. "" if there are none.
struct MpiSettings {
    std::string variables;  ///< names, separated by blanks
    std::string lines;      ///< "a = b, c = d"
    std::string files;      ///< paths of the files, separated by blanks
};
MpiSettings mpi_settings(const Environment& environment, const std::filesystem::path& home);

/// Prepares this process for an mpirun as its child. Removes variables of other launches from the
/// environment, and sets HOME if neither a variable nor the password file has it. Errors: E697 for
/// a host name with which Open MPI 4 crashes.
void ready_for_mpirun();

}  // namespace lockstep
