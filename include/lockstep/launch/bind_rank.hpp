// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's own cores and GPU: cores are bound before anything in it has threads.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"

#include <map>
#include <string>

namespace lockstep {

/// Binds this process as early_binding() says and returns what the program that it becomes must
/// find in its environment; empty if nothing is bound. Call before MPI starts.
std::map<std::string, std::string> bind_rank(const RankFacts& facts);

/// For a process that starts no other ranks and becomes a program with OpenMP: what must be in its
/// environment so that it keeps its cores. Empty if no variable has OpenMP bind its first thread.
std::map<std::string, std::string> kept_cores();

/// In the program that a bound rank became: OpenMP kept this thread for its first core, and threads
/// that it makes (readers, communication) would all be there. Gives it the rank's cores back.
void release_first_thread();

/// Why nothing is bound, if a setting of the user forbids it; else "".
std::string binding_note(const RankFacts& facts);

/// Collective. Ranks that compute on GPUs select theirs by PCI address, ask CUDA what it selected,
/// and compare with each other; what fails becomes a fact for check G1. Instances (MIG) are left
/// out: the driver has started already, and they must be named before.
void select_own_gpu(const Communicator& ranks, const RankFacts& facts, DoctorFacts& mine);

}  // namespace lockstep
