// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/core/error.hpp"

#include "plan_forms.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
std::vector<HostSeats> seats_by_host(const Placement& placement) {
    std::vector<HostSeats> hosts;
    for (const auto& seat : placement.seats) {
        auto host = std::ranges::find(hosts, seat.host, &HostSeats::host);
        if (host == hosts.end()) host = hosts.insert(hosts.end(), {seat.host, {}});
        host->seats.push_back(seat);
    }
    for (auto& host : hosts) std::ranges::sort(host.seats, {}, &RankSeat::local_rank);
    return hosts;
}

bool is_by_slot(const Placement& placement) {
    const auto& seats = placement.seats;
    for (std::size_t i = 1; i < seats.size(); ++i)
        if (seats[i].host == seats[i - 1].host ? seats[i].local_rank != seats[i - 1].local_rank + 1
                                               : seats[i].local_rank != 0)
            return false;
    return true;
}

bool are_hosts_alike(const std::vector<HostSeats>& hosts) {
    return std::ranges::all_of(hosts, [&](const HostSeats& host) {
        return std::ranges::equal(
            host.seats, hosts.front().seats, {}, &RankSeat::cpus, &RankSeat::cpus);
    });
}

std::string host_list(const std::vector<HostSeats>& hosts) {
    std::vector<std::string> words;
    for (const auto& host : hosts)
        words.push_back(fmt::format("{}:{}", host.host, host.seats.size()));
    return fmt::format("{}", fmt::join(words, ","));
}

OpenMpSettings openmp_settings(const RankSeat& seat) {
    // Where a core has several CPUs here, OpenMP's own "cores" would be one place for all of them.
    return {std::to_string(std::max(1, seat.threads)),
            seat.threads > static_cast<int>(seat.cpus.size()) ? "" : "threads",
            seat.threads > static_cast<int>(seat.cpus.size()) ? "false" : "close"};
}

std::string train_words(const Placement& placement) {
    const auto& seats = placement.seats;
    const bool is_same = !seats.empty() && std::ranges::all_of(seats, [&](const RankSeat& seat) {
        return seat.threads >= 1 && seat.threads == seats.front().threads;
    });
    if (!is_same) return "lockstep train ...";
    return fmt::format("lockstep train --threads {} ...", seats.front().threads);
}

std::string rankfile_text(const Placement& placement) {
    const bool has_cores = std::ranges::none_of(
        placement.seats, [](const RankSeat& seat) { return seat.cpus.empty(); });
    check(has_cores, [] {
        return Error("E645",
                     "a plan without cores has no form 'rankfile'",
                     "nothing is known of the nodes",
                     "give --topology FILE, made on such a node by 'lockstep map --save-topology'");
    });
    // Open MPI would else read its own numbers of cores, which depend on how it orders them.
    std::string text = fmt::format("# CPUs by the kernel's numbers: mpirun {} --rankfile FILE\n",
                                   physical_rankfile);
    for (const auto& seat : placement.seats)
        text += fmt::format("rank {}={} slot={}\n", seat.rank, seat.host, cpu_list_text(seat.cpus));
    return text;
}

}  // namespace lockstep
