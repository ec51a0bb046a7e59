// SPDX-License-Identifier: Apache-2.0
// The common parts of a plan's written forms.
#pragma once

#include "lockstep/cluster/map.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A plan's hosts in order of their first rank, each with its seats by local rank.
struct HostSeats {
    std::string host;
    std::vector<RankSeat> seats;
};
std::vector<HostSeats> seats_by_host(const Placement& placement);

/// Returns true if ranks fill one host after the other.
bool is_by_slot(const Placement& placement);

/// Returns true if every host has the same number of seats, on the same cores.
bool are_hosts_alike(const std::vector<HostSeats>& hosts);

/// Makes mpirun read a rankfile's slots as the kernel's CPU numbers (Open MPI 4, not 5).
constexpr std::string_view physical_rankfile = "--mca rmaps_rank_file_physical 1";

/// Returns "n1:4,n2:4".
std::string host_list(const std::vector<HostSeats>& hosts);

/// Returns "lockstep train --threads 8 ...", if ranks have the same number of threads.
/// (OMP_PROC_BIND would keep readers and the communication thread on a rank's first core.)
std::string train_words(const Placement& placement);

}  // namespace lockstep
