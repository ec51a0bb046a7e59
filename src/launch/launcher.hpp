// SPDX-License-Identifier: Apache-2.0
// What this process, machine and network allow, asked before mpirun, which says less or nothing;
// and the meaning of an end of a launch by the launcher itself, not by a rank.
#pragma once

#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/launch/host_probe.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the network in which this host and all `hosts` reach each other, as each of them tries
/// over ssh. Of several it is the one by which this host's routes lead to them. `own` are this
/// host's addresses. Nothing is tried if all are this host, or if OMPI_MCA_* choose interfaces.
/// Errors: E647 for a name that cannot be resolved, a host that does not answer, or if no network
/// connects them.
LaunchNetwork network_towards(std::span<const std::string> hosts,
                              const HostAddresses& own,
                              const Environment& environment);

/// Returns the arguments for mpirun.
std::vector<std::string> network_words(const LaunchNetwork& network);

/// Returns the arguments for the transport of messages: sockets and shared memory, unless hosts
/// share RDMA or the user's OMPI_MCA_pml says otherwise: then Open MPI takes its best.
std::vector<std::string> carrier_words(const LaunchNetwork& network,
                                       const Environment& environment);

/// Checks the number of ranks. Errors: E601 if `ranks` exceed the cores of this process.
void check_cores(int ranks);

/// Raises the soft limit of open files if `ranks` of this node need more. Errors: E693 if the hard
/// limit is too low, or if the limit of file sizes is below Open MPI's files.
void settle_limits(int ranks);

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
