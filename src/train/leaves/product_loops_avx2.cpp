// SPDX-License-Identifier: Apache-2.0
#define LOCKSTEP_PRODUCT_LOOPS avx2
#define LOCKSTEP_PRODUCT_NAME "avx2"
#include "leaves/product_loops.inl"
