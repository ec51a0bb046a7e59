// SPDX-License-Identifier: Apache-2.0
// One step of an optimizer over everything that a rank owns.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/optimizer.hpp"

#include "replica/update_loops.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

/// Which of several equal copies of the parameters a rank's pieces belong to.
enum class ParameterCopy { first, other };

/// Collective where tensors have rates of their own: one message for the sums of all `tensors`. The
/// first copies of all `ranks` together have each element once. `pieces` are memory of who runs
/// `loops`.
void update_pieces(const Optimizer& optimizer,
                   const Communicator& ranks,
                   std::span<const ParameterPiece> pieces,
                   ParameterCopy copy,
                   std::size_t tensors,
                   const UpdateStep& step,
                   UpdateLoops& loops = host_loops());

}  // namespace lockstep
