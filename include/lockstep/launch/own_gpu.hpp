// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether each rank gets the GPU that the placement gives it.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"

namespace lockstep {

/// Collective. Ranks that compute on GPUs select theirs by PCI address, ask CUDA what it selected,
/// and compare with each other; what fails becomes a fact for check G1. Instances (MIG) are left
/// out: the driver has started already, and they must be named before.
void select_own_gpu(const Communicator& ranks, const RankFacts& facts, DoctorFacts& mine);

}  // namespace lockstep
