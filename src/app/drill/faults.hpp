// SPDX-License-Identifier: Apache-2.0
// The faults that are rehearsed: a row and a function for each.
#pragma once

#include "drill/drill_bed.hpp"

#include <span>

namespace lockstep {

/// One fault: its option without dashes, what --help says, and what rehearses it. The function
/// fills in `done`, `why_skipped` and `expectations`. Errors: E242 when a signal asked to end.
struct Fault {
    const char* name;
    const char* help;
    FaultReport (*rehearse)(DrillBed& bed);
};

/// In the order in which they are rehearsed.
std::span<const Fault> all_faults();

FaultReport kill_rank(DrillBed& bed);      ///< kill -9 of the last rank
FaultReport stop_rank(DrillBed& bed);      ///< the last rank stands still
FaultReport kill_launcher(DrillBed& bed);  ///< kill -9 of `lockstep train` itself
FaultReport preempt(DrillBed& bed);        ///< TERM, as SLURM sends it before it takes a node away
FaultReport damage_data(DrillBed& bed);    ///< a block of the data is damaged
FaultReport fill_disk(DrillBed& bed);      ///< the run's file system has no byte left
FaultReport fill_shm(DrillBed& bed);       ///< /dev/shm has too little room for Open MPI
FaultReport lose_node(DrillBed& bed);      ///< all ranks of the last host fall silent

/// The expectation that `logs --first-error` names this rank on this host with this trouble, such
/// as "rank dead", or error code.
Expectation expect_cause(const fs::path& run,
                         int rank,
                         const std::string& host,
                         const std::string& trouble);

/// The expectation of an exit code; of a training that did not end it says so.
Expectation expect_exit(int code, const Struck& struck);

}  // namespace lockstep
