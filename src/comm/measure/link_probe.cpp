// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/clock.hpp"

#include "base/mpi_check.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace lockstep {
namespace {

constexpr int tag = 1, repetitions = 3;

double seconds_of_exchange(const Communicator& ranks,
                           int peer,
                           std::vector<std::byte>& out,
                           std::vector<std::byte>& in) {
    const auto bytes = static_cast<int>(out.size());
    const double begin = now_s();
    check_mpi(MPI_Sendrecv(out.data(),
                           bytes,
                           MPI_BYTE,
                           peer,
                           tag,
                           in.data(),
                           bytes,
                           MPI_BYTE,
                           peer,
                           tag,
                           ranks.handle(),
                           MPI_STATUS_IGNORE),
              "MPI_Sendrecv");
    return now_s() - begin;
}

constexpr int clock_tag = 32002;
constexpr int probe_rounds = 16;  // the first ones also set up the connection

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
        for (int round = 0; round < probe_rounds; ++round) {
            receive_time(leaders, peer);
            send_time(leaders, peer, clock());
        }
}

ClockOffset ask(const Communicator& leaders, const std::function<double()>& clock) {
    ClockOffset best{0, std::numeric_limits<double>::infinity()};
    for (int round = 0; round < probe_rounds; ++round) {
        const double asked_s = clock();
        send_time(leaders, 0, asked_s);
        const double root_s = receive_time(leaders, 0), heard_s = clock();
        const double error_s = (heard_s - asked_s) / 2;
        if (error_s >= 0 && error_s < best.error_s) best = {asked_s + error_s - root_s, error_s};
    }
    return best;
}

}  // namespace

int mpi_thread_level() {
    constexpr std::array levels{
        MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    int initialized = 0, level = MPI_THREAD_MULTIPLE;
    check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
    if (initialized != 0) check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    return static_cast<int>(std::ranges::find(levels, level) - levels.begin());
}

int tournament_rounds(int ranks) {
    return ranks < 2 ? 0 : ranks - 1 + ranks % 2;
}

int tournament_peer(int rank, int round, int ranks) {
    const int circle = tournament_rounds(ranks);  // odd; the one beyond it sits in the middle
    int peer = (2 * round - rank) % circle;
    if (peer < 0) peer += circle;
    if (rank == circle) peer = round;
    if (rank < circle && peer == rank) peer = circle;
    return peer < ranks ? peer : -1;
}

std::vector<LinkSpeed> measure_link_speeds(const Communicator& ranks, std::size_t bytes) {
    std::vector<LinkSpeed> speeds;
    std::vector<std::byte> out(bytes), in(bytes);
    for (int round = 0; round < tournament_rounds(ranks.size()); ++round) {
        const int peer = tournament_peer(ranks.rank(), round, ranks.size());
        ranks.barrier();
        if (peer < 0) continue;
        double best = std::numeric_limits<double>::infinity();
        for (int i = 0; i < repetitions; ++i)
            best = std::min(best, seconds_of_exchange(ranks, peer, out, in));
        speeds.push_back({peer, static_cast<double>(bytes) / std::max(best, 1e-9)});
    }
    return speeds;
}

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
