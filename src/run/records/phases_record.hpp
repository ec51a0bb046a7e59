// SPDX-License-Identifier: Apache-2.0
// The form of seconds by phase in logs and metrics.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/record.hpp"

namespace lockstep {

/// {"data": 0.1, "forward": 2.5, ...}; borrows them.
struct PhasesByName {
    PhaseSeconds* seconds = nullptr;
};
void describe(Record& record, PhasesByName& phases);

}  // namespace lockstep
