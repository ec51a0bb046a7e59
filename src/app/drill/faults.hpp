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

FaultReport fill_disk(DrillBed& bed);  ///< fills the run's file system
FaultReport fill_shm(DrillBed& bed);   ///< /dev/shm has too little room for Open MPI

/// Makes the expectation of an exit code; it reports a training that did not end by itself.
Expectation expect_exit(int code, const Struck& struck);

}  // namespace lockstep
