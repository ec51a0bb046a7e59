// SPDX-License-Identifier: Apache-2.0
// Loops over floats that are bound by roots and divisions where vectors are as narrow as every
// processor's. The bits are the same: each element by itself, no multiply-add is contracted
// (-ffp-contract=off), and roots and quotients are rounded correctly whatever the width.
#pragma once

/// Of a function: translated for several instruction sets; the loader takes the widest.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LOCKSTEP_WIDEST_VECTORS \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LOCKSTEP_WIDEST_VECTORS
#endif
