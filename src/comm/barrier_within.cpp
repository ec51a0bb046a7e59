// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/clock.hpp"

#include "base/missing_ranks.hpp"
#include "base/mpi_check.hpp"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr int barrier_tag = 32001;

/// An empty message to and from every other rank: who has not sent one has not arrived.
class Arrivals {
  public:
    explicit Arrivals(const Communicator& ranks) {
        for (int peer = 0; peer < ranks.size(); ++peer) {
            if (peer == ranks.rank()) continue;
            peers_.push_back(peer);
            const auto post = [&](auto call, auto& requests, const char* name) {
                requests.push_back(MPI_REQUEST_NULL);
                check_mpi(
                    call(nullptr, 0, MPI_BYTE, peer, barrier_tag, ranks.handle(), &requests.back()),
                    name);
            };
            post(MPI_Isend, sends_, "MPI_Isend");
            post(MPI_Irecv, receives_, "MPI_Irecv");
        }
    }
    ~Arrivals() {
        for (MPI_Request& request : receives_)
            if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
        for (auto* requests : {&sends_, &receives_})
            for (MPI_Request& request : *requests)
                if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
    Arrivals(const Arrivals&) = delete;
    Arrivals& operator=(const Arrivals&) = delete;

    bool all_came() {
        int came = 0;
        check_mpi(
            MPI_Testall(
                static_cast<int>(receives_.size()), receives_.data(), &came, MPI_STATUSES_IGNORE),
            "MPI_Testall");
        return came != 0;
    }

    std::vector<int> missing() {
        std::vector<int> ranks;
        for (std::size_t i = 0; i < receives_.size(); ++i) {
            int came = 0;
            check_mpi(MPI_Test(&receives_[i], &came, MPI_STATUS_IGNORE), "MPI_Test");
            if (came == 0) ranks.push_back(peers_[i]);
        }
        return ranks;
    }

  private:
    std::vector<int> peers_;
    std::vector<MPI_Request> sends_, receives_;
};

}  // namespace

std::vector<int> ranks_not_here_within(const Communicator& ranks, double deadline_s) {
    Arrivals arrivals(ranks);
    const double end = now_s() + deadline_s;
    while (!arrivals.all_came()) {
        if (now_s() >= end) return arrivals.missing();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return {};
}

void barrier_within(const Communicator& ranks, double deadline_s, const std::string& purpose) {
    if (ranks.size() == 1) return;
    const std::vector<int> missing = ranks_not_here_within(ranks, deadline_s);
    if (!missing.empty()) throw missing_ranks_error(missing, purpose, deadline_s);
}

}  // namespace lockstep
