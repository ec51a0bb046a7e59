// SPDX-License-Identifier: Apache-2.0
// The collective self-test: sums, links, and equal pieces of work.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"
#include "lockstep/comm/communicator.hpp"

#include <vector>

namespace lockstep {

/// Collective over one rank of each node; `to_rank` are ranks of `world`.
std::vector<PairSpeed> test_links(const Communicator& world, const Communicator& leaders);

/// Collective. The same arithmetic on every rank, step by step: its hash and its time.
void test_work(const Communicator& ranks, SelfTestFacts& test);

/// Collective. Exact sums of 1, 3, 1023 and 1 Mi + 1 elements of every type; and, where all ranks
/// are on one node with room and a core each, an all-reduce beside the cost model. Two ranks at
/// least.
void test_sums(const Communicator& ranks, const DoctorFacts& mine, SelfTestFacts& test);

}  // namespace lockstep
