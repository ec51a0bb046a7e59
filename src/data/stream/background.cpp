// SPDX-License-Identifier: Apache-2.0
#include "background.hpp"

#include <sched.h>

namespace lockstep {

void work_in_background() {
    const sched_param usual{};
    if (::sched_getscheduler(0) == SCHED_OTHER) ::sched_setscheduler(0, SCHED_BATCH, &usual);
}

}  // namespace lockstep
