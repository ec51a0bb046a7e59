// SPDX-License-Identifier: Apache-2.0
// The faults of a drill: a row and a function for each.
#pragma once

#include "drill/drill_bed.hpp"

#include <span>

namespace lockstep {

/// One fault: its option without dashes, its help, and the function that rehearses it. The function
/// fills in `done`, `why_skipped` and `expectations`. Errors: E242 when a signal asks to end.
struct Fault {
    const char* name;
    const char* help;
    FaultReport (*rehearse)(DrillBed& bed);
};

/// Returns the faults in the order of their rehearsal.
std::span<const Fault> all_faults();

FaultReport kill_rank(DrillBed& bed);      ///< kill -9 of the last rank
FaultReport stop_rank(DrillBed& bed);      ///< stops the last rank
FaultReport kill_launcher(DrillBed& bed);  ///< kill -9 of `lockstep train` itself
FaultReport preempt(DrillBed& bed);        ///< TERM, as SLURM sends it before a preemption
FaultReport damage_data(DrillBed& bed);    ///< a block of the data is damaged
FaultReport fill_disk(DrillBed& bed);      ///< fills the run's file system
FaultReport fill_shm(DrillBed& bed);       ///< /dev/shm has too little room for Open MPI
FaultReport lose_node(DrillBed& bed);      ///< stops all ranks of the last host

/// Makes the expectation that `logs --first-error` names this rank on this host with this trouble,
/// such as "rank dead", or error code.
Expectation expect_cause(const fs::path& run,
                         int rank,
                         const std::string& host,
                         const std::string& trouble);

/// Makes the expectation of an exit code; it reports a training that did not end by itself.
Expectation expect_exit(int code, const Struck& struck);

}  // namespace lockstep
