// SPDX-License-Identifier: Apache-2.0
// The families of checks, and their common functions.
#pragma once

#include "lockstep/cluster/doctor.hpp"

#include <map>
#include <string>
#include <vector>

namespace lockstep {

std::span<const DoctorCheck> launch_checks();
std::span<const DoctorCheck> cpu_checks();
std::span<const DoctorCheck> gpu_checks();
std::span<const DoctorCheck> fabric_checks();
std::span<const DoctorCheck> network_checks();
std::span<const DoctorCheck> limit_checks();
std::span<const DoctorCheck> self_test_checks();

/// Returns the variable's value, "" if it is not set.
std::string variable(const DoctorFacts& facts, const std::string& name);

/// Returns "NAME=value", or "NAME is not set".
std::string variable_text(const DoctorFacts& facts, const std::string& name);

/// Returns the variable as a whole number, nothing if it is not one.
std::optional<std::int64_t> whole_variable(const DoctorFacts& facts, const std::string& name);

/// Returns ranks by node, nodes in order of their lowest rank.
std::vector<RanksOfNode> nodes_of(JobRanks ranks);

/// Returns the first rank of each node, in that order.
RanksOfNode first_of_nodes(JobRanks ranks);

std::vector<int> numbers_of(const RanksOfNode& ranks);

/// Each value with the ranks that have it, in the order of values.
using RanksByValue = std::map<std::string, std::vector<int>>;
/// Returns "A on ranks 0-3, B on rank 4".
std::string values_text(const RanksByValue& values);

/// Returns the parts between commas, without empty ones.
std::vector<std::string> comma_separated(const std::string& text);

/// Returns the GPUs that this process may use, in CUDA's numbering by PCI address: those of the
/// driver that CUDA_VISIBLE_DEVICES names.
std::vector<const GpuFacts*> visible_gpus(const DoctorFacts& facts);

/// Returns the GPU of this rank: the selected one, else the one with the number of its local rank.
/// nullptr: none.
const GpuFacts* gpu_of(const DoctorFacts& facts);

}  // namespace lockstep
