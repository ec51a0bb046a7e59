// SPDX-License-Identifier: Apache-2.0
#define LOCKSTEP_ROWS baseline
#include "rows.inl"
