// SPDX-License-Identifier: Apache-2.0
// How threads that work ahead share processors with those that use their work.
#pragma once

namespace lockstep {

/// From now on this thread, when it is woken, waits until a processor is free or the scheduler's
/// next tick instead of taking the one of whoever runs there: most often of the caller of next(),
/// who woke it by giving a batch back. Its share of the processors stays the same. Only of threads
/// with the usual policy; never fails.
void work_in_background();

}  // namespace lockstep
