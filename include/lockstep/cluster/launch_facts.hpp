// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launcher's data about this process, and their comparison with MPI's.
#pragma once

#include "lockstep/core/environment.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// The one table of what Open MPI 4.1 (with ORTE's daemons) and 5.0 (with PRRTE's) call differently.
// slurm/env.sh has it as variables. docs/install.md says what differs besides names.

/// A setting of mpirun. It is given by both names: each version skips those that it does not know.
struct MpiSetting {
    const char *name_in_4, *name_in_5;
};
/// The file that names the hosts of a site.
inline constexpr MpiSetting host_file_setting{"orte_default_hostfile", "prte_default_hostfile"};
/// The folder of the launcher's own files.
inline constexpr MpiSetting session_folder_setting{"orte_tmpdir_base", "prte_tmpdir_base"};

/// Programs of both versions that start ranks.
inline constexpr std::array mpirun_names{"mpirun", "mpiexec", "orterun", "prterun", "prun"};
/// Programs of both versions that start ranks on other hosts.
inline constexpr std::array mpi_daemon_names{"orted", "prted"};

/// Variables by which users choose networks; the last two are only of 5.0.
inline constexpr std::array network_variables{"OMPI_MCA_btl_tcp_if_include",
                                              "OMPI_MCA_btl_tcp_if_exclude",
                                              "OMPI_MCA_oob_tcp_if_include",
                                              "OMPI_MCA_oob_tcp_if_exclude",
                                              "PRTE_MCA_prte_if_include",
                                              "PRTE_MCA_prte_if_exclude"};

/// The program that started this process as one of several ranks; pmi: MPICH's or Intel's mpiexec.
enum class Launcher { none, mpirun, srun, torchrun, pmi };
std::string_view launcher_name(Launcher launcher);  ///< the name for messages

/// The launcher's data in the environment. Numbers are absent if it does not give them.
struct LaunchFacts {
    Launcher launcher = Launcher::none;
    std::optional<std::int64_t> rank, size, local_rank, local_size;
    std::optional<std::int64_t> pmix_rank;
    std::optional<std::int64_t> slurm_step_tasks;  ///< tasks of the surrounding srun step
    std::string slurm_job_id;                      ///< "" outside SLURM
    std::int64_t slurm_restart_count = 0;
    bool is_heterogeneous = false;             ///< SLURM counts tasks for each component
    std::map<std::string, std::string> found;  ///< the variables that were read
};

/// Reads the launcher's variables. If one launcher started another (mpirun inside a SLURM step),
/// the inner one counts. Errors: E113.
LaunchFacts read_launch_facts(const Environment& environment);

/// Compares the launcher's data with what MPI reports after its start. Errors: E604 with all values
/// if the launcher started several processes and each sees one rank, if rank or size differ, or if
/// the variables contradict each other (left over from another launch).
void check_launch(const LaunchFacts& facts, int mpi_rank, int mpi_size);

/// Checks the number of ranks of a process that a launcher started in a world of `mpi_size` ranks.
/// `asked` is the number of --np or --hosts, 0 if neither is given. Errors: E604 with both numbers
/// if they differ.
void check_asked_ranks(const LaunchFacts& facts, std::int64_t asked, int mpi_size);

}  // namespace lockstep
