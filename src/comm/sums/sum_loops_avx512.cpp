// SPDX-License-Identifier: Apache-2.0
#define LOCKSTEP_SUM_LOOPS avx512
#include "sum_loops.inl"
