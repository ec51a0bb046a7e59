// SPDX-License-Identifier: Apache-2.0
// Healthy jobs to be harmed by tests, and what the doctor then says.
#pragma once

#include "lockstep/cluster/doctor.hpp"

#include "cluster/placement/placement_cases.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

using Job = std::vector<DoctorFacts>;

/// `each` ranks on each of `nodes` nodes of this kind, cores split evenly, in order of rank, as
/// mpirun would start them.
Job job_of(const NodeTopology& node, int nodes, int each);

/// Two DGX-like nodes of 8 ranks, each with the GPU next to it.
Job gpu_job();
/// Two two-socket nodes of 2 ranks.
Job cpu_job();
/// One two-core virtual machine with 2 ranks.
Job small_job();
/// One process on a laptop-like machine, without launcher.
Job laptop();
/// Two ranks in a container with a CPU quota, veth and small but sufficient /dev/shm.
Job container();

/// A job that harms nothing but one check's ailment.
struct Sick {
    std::string id;
    Severity severity = Severity::warning;
    std::string says;  ///< part of what, why or fix
    Job (*healthy)() = nullptr;
    std::function<void(Job&)> harm;
};

/// Collects such jobs, by check.
class SickJobs {
  public:
    /// Those that follow are found by this check, and with this severity.
    void check(const std::string& id, Severity severity, Job (*healthy)()) {
        next_ = {.id = id, .severity = severity, .says = "", .healthy = healthy, .harm = {}};
    }
    void says(const std::string& text, std::function<void(Job&)> harm) {
        next_.says = text;
        next_.harm = std::move(harm);
        all_.push_back(next_);
    }
    const std::vector<Sick>& all() const { return all_; }

  private:
    Sick next_;
    std::vector<Sick> all_;
};

std::vector<Sick> launch_and_cpu_cases();
std::vector<Sick> gpu_cases();
std::vector<Sick> fabric_cases();
std::vector<Sick> limit_and_self_test_cases();

/// Findings of one check.
std::vector<DoctorFinding> found(const std::string& id, const Job& job);

}  // namespace lockstep::test
