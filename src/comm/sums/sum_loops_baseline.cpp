// SPDX-License-Identifier: Apache-2.0
#define LOCKSTEP_SUM_LOOPS baseline
#include "sum_loops.inl"
