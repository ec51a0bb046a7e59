// SPDX-License-Identifier: Apache-2.0
#define LOCKSTEP_PRODUCT_LOOPS avx512
#define LOCKSTEP_PRODUCT_NAME "avx512"
#include "leaves/product_loops.inl"
