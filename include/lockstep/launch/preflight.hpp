// SPDX-License-Identifier: Apache-2.0
/// @file
/// The doctor's fast checks, before a job costs anything.
#pragma once

#include "lockstep/cluster/doctor.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Collective. Runs the fast checks over all ranks, in less than 2 s at 8 ranks of one node.
/// Warnings are logged once. Errors: E613 on all ranks, with the first error's cause and remedy and
/// the number of others.
/// `skip`: ids or families that the caller has looked at already.
void run_preflight(const Communicator& ranks,
                   const RankFacts& facts,
                   const DoctorPlan& plan,
                   const std::vector<std::string>& skip = {});

/// What `findings` mean for a job that is about to start: logs warnings. Errors: E613.
void judge_preflight(std::span<const DoctorFinding> findings);

}  // namespace lockstep
