// SPDX-License-Identifier: Apache-2.0
#define LOCKSTEP_ROWS avx2
#include "rows.inl"
