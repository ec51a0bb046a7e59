// SPDX-License-Identifier: Apache-2.0
// The collective self-test: sums, links, and equal pieces of work.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"
#include "lockstep/comm/communicator.hpp"

#include <span>
#include <vector>

namespace lockstep {

/// Collective over one rank of each node. Every pair of nodes is measured, but what goes to the
/// root must not grow with their square: each tells its slow links alone, as ranks of `world`.
void test_links(const Communicator& world, const Communicator& leaders, SelfTestFacts& test);

/// Those of less than slow_link_share of `median`, and doubtful ones; slowest first, 16 at most.
std::vector<PairSpeed> slow_pairs_of(std::vector<PairSpeed> pairs, double median);

/// Collective. The middle one, the greater of two, of all ranks' `values`, none below 0; 0 where
/// there are none. Found by eight sums of 256 counts, however many values there are.
double median_over(const Communicator& ranks, std::span<const double> values);

/// Collective. The same arithmetic on every rank, step by step: its hash and its time; and what
/// happens meanwhile on `cpus`, those of this rank. A quarter of a second at least.
LoadFacts test_work(const Communicator& ranks, const std::vector<int>& cpus, SelfTestFacts& test);

/// Collective. Exact sums of 1, 3, 1023 and 1 Mi + 1 floats by the exchange and by Open MPI; and,
/// where all ranks are on one node with a core each, a sum beside the speed of memory. Two ranks at
/// least.
void test_sums(const Communicator& ranks, const DoctorFacts& mine, SelfTestFacts& test);

}  // namespace lockstep
