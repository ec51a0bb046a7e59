// SPDX-License-Identifier: Apache-2.0
// The textbook's all-reduces over MPI point-to-point, one function each, and MPI_Allreduce.
// Training does not use them: they are here to be read, and to be compared with the exchange.
// Costs, for P ranks and n bytes, with a the time of an empty message, b that of a byte, and g that
// of adding a byte:
//
//     ring                 2(P-1) a + 2(P-1)/P n b + (P-1)/P n g    fewest bytes, most steps
//     recursive doubling   log2 P (a + n b + n g)                   fewest steps, most bytes
//     tree                 2 ceil(log2 P) (a + n b) + ceil(log2 P) n g
//     parameter server     2(P-1) a + 2(P-1)/P n b + (P-1)/P n g    all messages at once
//
// Each has its own order of additions, and so its own bits. The bits of the exchange do not depend
// on its transport (docs/decisions/0002-own-reducer.md).
//
// What must never happen: a rank reads a part that is still arriving. finish() ends each exchange
// of messages.
//
// Tested: comm/measure/measure_test.cpp (exact sums on 1 to 4 ranks, sizes that divide unevenly).

#include "measure/textbook.hpp"

#include "lockstep/core/error.hpp"

#include "base/mpi_check.hpp"
#include "sums/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <vector>

#include <mpi.h>

namespace lockstep {
namespace {

using Floats = std::span<float>;

// MPI counts in int.
constexpr std::size_t most_in_a_message = std::size_t{1} << 30;

template <class Action>
void in_messages(Floats all, Action&& action) {
    for (; !all.empty(); all = all.subspan(std::min(all.size(), most_in_a_message)))
        action(all.data(), static_cast<int>(std::min(all.size(), most_in_a_message)));
}

// into[i] += from[i].
void add(Floats into, Floats from) {
    constexpr std::array left_to_right = {0, 1};
    const std::array<const float*, 2> both = {into.data(), from.data()};
    const std::array<float*, 1> to = {into.data()};
    sum_into(left_to_right, both, to, into.size());
}

class Textbook {
  public:
    explicit Textbook(const Communicator& ranks)
        : ranks_(ranks.duplicate()), rank_(ranks_.rank()), size_(ranks_.size()) {}

    void sum(SumMethod method, Floats all) {
        if (size_ == 1) return;
        switch (method) {
            case SumMethod::lockstep:
                expect(false, "the exchange is none of the textbook's");
                return;
            case SumMethod::ring:
                return ring(all);
            case SumMethod::recursive_doubling:
                return recursive_doubling(all);
            case SumMethod::tree:
                return tree(all);
            case SumMethod::parameter_server:
                return parameter_server(all);
            case SumMethod::open_mpi:
                return mpi(all);
        }
    }

  private:
    // P parts travel around a ring, each rank to the next. In the first P-1 steps a part gathers
    // one rank's share at each stop: rank r ends with part r+1 whole. In the next P-1 steps the
    // whole parts go around. (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for
    // clusters of workstations, 2009.)
    void ring(Floats all) {
        const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
        for (int step = 0; step < size_ - 1; ++step) {
            const Floats mine = part(all, rank_ - step - 1);
            const Floats arriving = room(mine.size());
            receive(arriving, previous);
            send(part(all, rank_ - step), next);
            finish();
            add(mine, arriving);
        }
        for (int step = 0; step < size_ - 1; ++step) {
            receive(part(all, rank_ - step), previous);
            send(part(all, rank_ - step + 1), next);
            finish();
        }
    }

    // In step k every rank swaps all it has with the one 2^k away and adds. Where P is no power of
    // two, the first ranks fold in pairs: the odd one hands its share over, sits out and gets the
    // sum. (Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in
    // MPICH, 2005.)
    void recursive_doubling(Floats all) {
        const int players = static_cast<int>(std::bit_floor(static_cast<unsigned>(size_)));
        const int pairs = size_ - players;
        const bool is_in_pair = rank_ < 2 * pairs;
        if (is_in_pair && rank_ % 2 == 1) {
            send(all, rank_ - 1);
            finish();
            receive(all, rank_ - 1);
            return finish();
        }
        const Floats arriving = room(all.size());
        if (is_in_pair) {
            receive(arriving, rank_ + 1);
            finish();
            add(all, arriving);
        }
        const int player = is_in_pair ? rank_ / 2 : rank_ - pairs;
        for (int distance = 1; distance < players; distance *= 2) {
            const int other = player ^ distance;
            const int partner = other < pairs ? 2 * other : other + pairs;
            receive(arriving, partner);
            send(all, partner);
            finish();
            add(all, arriving);
        }
        if (is_in_pair) send(all, rank_ + 1);
        finish();
    }

    // In step k, ranks that are odd multiples of 2^k hand their sum to the rank 2^k below. Rank 0
    // ends with everything, and the same tree carries it back.
    void tree(Floats all) {
        int distance = 1;
        for (; distance < size_ && rank_ % (2 * distance) == 0; distance *= 2) {
            if (rank_ + distance >= size_) continue;
            const Floats arriving = room(all.size());
            receive(arriving, rank_ + distance);
            finish();
            add(all, arriving);
        }
        if (rank_ != 0) {
            send(all, rank_ - distance);
            finish();
            receive(all, rank_ - distance);
            finish();
        }
        for (distance /= 2; distance > 0; distance /= 2)
            if (rank_ + distance < size_) send(all, rank_ + distance);
        finish();
    }

    // Every rank is a worker and also the server of one part. Workers push each part to its server,
    // servers add what came, and all workers pull the sums. (Li et al., Scaling distributed machine
    // learning with the parameter server, 2014.)
    void parameter_server(Floats all) {
        const Floats mine = part(all, rank_);
        const Floats arriving = room(mine.size() * static_cast<std::size_t>(size_));
        const auto pushed_by = [&](int peer) {
            return arriving.subspan(mine.size() * static_cast<std::size_t>(peer), mine.size());
        };
        for (int peer = 0; peer < size_; ++peer) {
            if (peer == rank_) continue;
            receive(pushed_by(peer), peer);
            send(part(all, peer), peer);
        }
        finish();
        for (int peer = 0; peer < size_; ++peer)
            if (peer != rank_) add(mine, pushed_by(peer));
        for (int peer = 0; peer < size_; ++peer) {
            if (peer == rank_) continue;
            receive(part(all, peer), peer);
            send(mine, peer);
        }
        finish();
    }

    void mpi(Floats all) {
        in_messages(all, [&](float* data, int count) {
            check_mpi(MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, ranks_.handle()),
                      "MPI_Allreduce");
        });
    }

    // Part `index`, any whole number modulo P, of P near-equal ones.
    Floats part(Floats all, int index) const {
        const auto parts = static_cast<std::size_t>(size_);
        const auto i = static_cast<std::size_t>((index % size_ + size_) % size_);
        const std::size_t begin = all.size() * i / parts;
        return all.subspan(begin, all.size() * (i + 1) / parts - begin);
    }

    Floats room(std::size_t count) {
        if (room_.size() < count) room_.resize(count);
        return Floats(room_).first(count);
    }

    void send(Floats from, int to) {
        in_messages(from, [&](float* data, int count) {
            MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
            check_mpi(MPI_Isend(data, count, MPI_FLOAT, to, 0, ranks_.handle(), &request),
                      "MPI_Isend");
        });
    }

    void receive(Floats into, int from) {
        in_messages(into, [&](float* data, int count) {
            MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
            check_mpi(MPI_Irecv(data, count, MPI_FLOAT, from, 0, ranks_.handle(), &request),
                      "MPI_Irecv");
        });
    }

    // Waits for all that was sent and received.
    void finish() {
        check_mpi(
            MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
            "MPI_Waitall");
        requests_.clear();
    }

    const Communicator ranks_;
    const int rank_, size_;
    std::vector<float> room_;
    std::vector<MPI_Request> requests_;
};

}  // namespace

InPlaceSum make_textbook_sum(const Communicator& ranks, SumMethod method) {
    return [textbook = std::make_shared<Textbook>(ranks), method](Floats all) {
        textbook->sum(method, all);
    };
}

}  // namespace lockstep
