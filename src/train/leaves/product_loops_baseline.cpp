// SPDX-License-Identifier: Apache-2.0
#define LOCKSTEP_PRODUCT_LOOPS baseline
#define LOCKSTEP_PRODUCT_NAME "baseline"
#include "leaves/product_loops.inl"
