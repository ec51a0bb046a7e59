// SPDX-License-Identifier: Apache-2.0
// Operators whose results depend on which samples are in a leaf.
#pragma once

namespace lockstep {

/// Once in a process: LibTorch calls kernels of ours where leaf_key is among an operator's keys.
void register_leaf_kernels();

}  // namespace lockstep
