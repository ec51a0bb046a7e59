// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/clock_offset.hpp"

#include "base/mpi_check.hpp"

#include <array>
#include <limits>

namespace lockstep {
namespace {

constexpr int clock_tag = 32002;
constexpr int rounds = 16;  // the first ones also set up the connection

void send_time(const Communicator& to, int peer, double time_s) {
    check_mpi(MPI_Send(&time_s, 1, MPI_DOUBLE, peer, clock_tag, to.handle()), "MPI_Send");
}

double receive_time(const Communicator& from, int peer) {
    double time_s = 0;
    check_mpi(MPI_Recv(&time_s, 1, MPI_DOUBLE, peer, clock_tag, from.handle(), MPI_STATUS_IGNORE),
              "MPI_Recv");
    return time_s;
}

void serve(const Communicator& leaders, const std::function<double()>& clock) {
    for (int peer = 1; peer < leaders.size(); ++peer)
        for (int round = 0; round < rounds; ++round) {
            receive_time(leaders, peer);
            send_time(leaders, peer, clock());
        }
}

ClockOffset ask(const Communicator& leaders, const std::function<double()>& clock) {
    ClockOffset best{0, std::numeric_limits<double>::infinity()};
    for (int round = 0; round < rounds; ++round) {
        const double asked_s = clock();
        send_time(leaders, 0, asked_s);
        const double root_s = receive_time(leaders, 0);
        const double heard_s = clock();
        const double error_s = (heard_s - asked_s) / 2;
        if (error_s >= 0 && error_s < best.error_s) best = {asked_s + error_s - root_s, error_s};
    }
    return best;
}

}  // namespace

ClockOffset measure_clock_offset(const Communicator& ranks,
                                 const Communicator& node,
                                 const std::function<double()>& clock) {
    const Communicator leaders = ranks.split(node.is_root() ? 0 : 1);
    ClockOffset offset;
    if (node.is_root() && leaders.is_root())
        serve(leaders, clock);
    else if (node.is_root())
        offset = ask(leaders, clock);
    // At most one rank of a node has another value than 0.
    std::array<double, 2> known = {offset.ahead_s, offset.error_s};
    node.all_reduce_sum(known);
    return {known[0], known[1]};
}

}  // namespace lockstep
