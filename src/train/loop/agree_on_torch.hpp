// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"

#include "model/known_errors.hpp"

namespace lockstep {

/// Collective. agree() where LibTorch computes: what it throws has a name of ours.
template <class Work>
void agree_on_torch(const Communicator& ranks, Work&& work) {
    agree(ranks, [&] { with_known_errors(work); });
}

}  // namespace lockstep
