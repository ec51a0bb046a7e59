// SPDX-License-Identifier: Apache-2.0
/// @file
/// What versions of NCCL, PMIx and Slurm are known to do wrong: one table, each row with its
/// source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Versions as numbers: 2.28.9 is 22809, 25.11.2 is 251102. 0 is unknown, and has no faults.
struct SoftwareVersions {
    int nccl = 0;
    int pmix = 0;   ///< the PMIx library that MPI has loaded
    int slurm = 0;  ///< 0 where srun does not start the ranks
    bool has_several_hosts = true;
    bool disables_pxn = false;  ///< NCCL_PXN_DISABLE is set
#ifdef __aarch64__
    bool is_arm = true;
#else
    bool is_arm = false;
#endif
};

/// A row of the table that applies.
struct KnownFault {
    std::string what;    ///< "NCCL 2.29.2 is known to hang"
    std::string fix;     ///< "use 2.29.3 or later"
    std::string source;  ///< the issue or document that says so
};

/// Returns the rows of the table that apply.
std::vector<KnownFault> known_faults(const SoftwareVersions& versions);

/// Returns the number of the first version in a text such as "slurm 25.05.3"; 0 if it has none.
int version_number(std::string_view text);

/// Asks `scontrol`, which needs no controller for that. Returns 0 if it does not answer.
int installed_slurm_version();

/// Returns the version of the PMIx library in this process, 0 if there is none.
int loaded_pmix_version();

}  // namespace lockstep
