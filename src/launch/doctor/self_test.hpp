// SPDX-License-Identifier: Apache-2.0
// The collective self-test: sums, links, and equal pieces of work.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"
#include "lockstep/comm/communicator.hpp"

#include <span>
#include <vector>

namespace lockstep {

/// Collective over one rank of each node. Measures every pair of nodes. Each node reports only its
/// slow links, as ranks of `world`, because the data at the root must not grow with the square of
/// the nodes.
void test_links(const Communicator& world, const Communicator& leaders, SelfTestFacts& test);

/// Returns the pairs below slow_link_share of `median`, and doubtful ones; slowest first, at most
/// 16.
std::vector<PairSpeed> slow_pairs_of(std::vector<PairSpeed> pairs, double median);

/// Collective. Returns the median (the greater of two) of all ranks' `values`, none below 0; 0 if
/// there are none. It takes eight sums of 256 counts for any number of values.
double median_over(const Communicator& ranks, std::span<const double> values);

/// Collective. Does the same arithmetic on every rank, step by step, and measures its hash, its
/// time, and the load of `cpus`, those of this rank. It takes at least a quarter of a second.
LoadFacts test_work(const Communicator& ranks, const std::vector<int>& cpus, SelfTestFacts& test);

/// Collective. Computes exact sums of 1, 3, 1023 and 1 Mi + 1 floats by the exchange and by Open
/// MPI. If all ranks are on one node with a core each, also compares a sum with the speed of
/// memory. At least two ranks.
void test_sums(const Communicator& ranks, const DoctorFacts& mine, SelfTestFacts& test);

}  // namespace lockstep
