// SPDX-License-Identifier: Apache-2.0
// The families of checks, and what they share.
#pragma once

#include "lockstep/cluster/doctor.hpp"

#include <map>
#include <string>
#include <vector>

namespace lockstep {

std::span<const DoctorCheck> launch_checks();
std::span<const DoctorCheck> cpu_checks();
std::span<const DoctorCheck> gpu_checks();
std::span<const DoctorCheck> gpu_health_checks();
std::span<const DoctorCheck> fabric_checks();
std::span<const DoctorCheck> network_checks();
std::span<const DoctorCheck> limit_checks();
std::span<const DoctorCheck> self_test_checks();

/// The variable's value, "" where it is not set.
std::string variable(const DoctorFacts& facts, const std::string& name);

/// "NAME=value", or "NAME is not set".
std::string variable_text(const DoctorFacts& facts, const std::string& name);

/// The variable as a whole number, nothing where it is not one.
std::optional<std::int64_t> whole_variable(const DoctorFacts& facts, const std::string& name);

/// Ranks by node, nodes in order of their lowest rank.
std::vector<RanksOfNode> nodes_of(JobRanks ranks);

std::vector<int> numbers_of(const RanksOfNode& ranks);

/// Each value with the ranks that have it, in the order of values.
using RanksByValue = std::map<std::string, std::vector<int>>;
/// "A on ranks 0-3, B on rank 4".
std::string values_text(const RanksByValue& values);

std::string lower_case(std::string text);

/// Pieces between commas, without empty ones.
std::vector<std::string> comma_separated(const std::string& text);

/// GPUs that this process may use, in CUDA's numbering by PCI address: those of the driver, and of
/// them those that CUDA_VISIBLE_DEVICES names.
std::vector<const GpuFacts*> visible_gpus(const DoctorFacts& facts);

/// The GPU this rank uses: the selected one, or else as local rank of those it sees. nullptr: none.
const GpuFacts* gpu_of(const DoctorFacts& facts);

}  // namespace lockstep
