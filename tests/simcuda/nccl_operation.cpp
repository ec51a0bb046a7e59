// SPDX-License-Identifier: Apache-2.0
// Every rank's part goes straight to whom it is for. Sums are taken there, in the order of a ring
// that begins elsewhere for each part of the data: the same on all ranks, and not the order of
// ranks, as with NCCL.
#include "simcuda/nccl_operation.hpp"

#include "simcuda/machine.hpp"

#include <array>
#include <climits>
#include <cstdint>
#include <cstring>

namespace simcuda {
namespace {

using lockstep::nccl::type_float32;
using lockstep::nccl::type_int64;

std::size_t bytes_of(int type) {
    constexpr std::array<std::size_t, 10> bytes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    if (type < 0 || type >= static_cast<int>(bytes.size())) die("a type that NCCL does not have");
    return bytes[static_cast<std::size_t>(type)];
}

struct Sum {
    std::vector<const void*> parts;  ///< by rank
    std::size_t count;
    int first;  ///< whose part comes first; -1: another for each stretch of the elements
    void* out;
};

/// out[i] = the sum of all parts' element i.
template <class Number>
void add_up(const Sum& sum) {
    const std::size_t ranks = sum.parts.size();
    const auto value = [&](std::size_t rank, std::size_t i) {
        return static_cast<const Number*>(sum.parts[rank])[i];
    };
    for (std::size_t i = 0; i < sum.count; ++i) {
        const std::size_t first =
            sum.first < 0 ? i * ranks / sum.count : static_cast<std::size_t>(sum.first);
        Number total = value(first, i);
        for (std::size_t step = 1; step < ranks; ++step) total += value((first + step) % ranks, i);
        static_cast<Number*>(sum.out)[i] = total;
    }
}

void add_up(const Sum& sum, int type) {
    if (type == type_float32) return add_up<float>(sum);
    if (type == type_int64) return add_up<std::int64_t>(sum);
    die("a sum of a type that is not simulated");
}

}  // namespace

std::size_t NcclOperation::bytes() const {
    return count * bytes_of(type);
}

std::size_t NcclOperation::traffic(int rank, int size) const {
    const auto others = static_cast<std::size_t>(size - 1);
    switch (kind) {
        case NcclKind::receive:
            return 0;
        case NcclKind::send:
        case NcclKind::reduce:
            return rank == root ? 0 : bytes();
        case NcclKind::all_reduce:
            return 2 * others * bytes() / static_cast<std::size_t>(size);
        case NcclKind::all_gather:
        case NcclKind::reduce_scatter:
            break;
    }
    return others * bytes();
}

NcclTransfer::NcclTransfer(const NcclOperation& operation, MPI_Comm ranks)
    : operation_(operation), ranks_(ranks) {
    operation_.from = machine().memory.behind(operation.from);
    operation_.to = machine().memory.behind(operation.to);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
    if (operation_.bytes() > INT_MAX) die("more bytes than fit one message of MPI");
    if (adds_up()) received_.resize(static_cast<std::size_t>(size_) * operation_.bytes());
    begin();
}

void NcclTransfer::begin() {
    const bool is_root = rank_ == operation_.root;
    switch (operation_.kind) {
        case NcclKind::send:
            return send_to(operation_.root, operation_.from);
        case NcclKind::receive:
            return receive_from(operation_.root, operation_.to);
        case NcclKind::reduce:
            return is_root ? receive_from_others(received_.data())
                           : send_to(operation_.root, operation_.from);
        case NcclKind::all_gather:
            receive_from_others(static_cast<std::byte*>(operation_.to));
            return send_to_others(0);
        case NcclKind::reduce_scatter:
            receive_from_others(received_.data());
            return send_to_others(operation_.bytes());
        case NcclKind::all_reduce:
            receive_from_others(received_.data());
            return send_to_others(0);
    }
}

bool NcclTransfer::adds_up() const {
    return operation_.kind == NcclKind::all_reduce || operation_.kind == NcclKind::reduce_scatter ||
           (operation_.kind == NcclKind::reduce && rank_ == operation_.root);
}

void NcclTransfer::send_to(int rank, const void* data) {
    const int bytes = static_cast<int>(operation_.bytes());
    MPI_Isend(data, bytes, MPI_BYTE, rank, 0, ranks_, &requests_.emplace_back());
}

void NcclTransfer::receive_from(int rank, void* data) {
    const int bytes = static_cast<int>(operation_.bytes());
    MPI_Irecv(data, bytes, MPI_BYTE, rank, 0, ranks_, &requests_.emplace_back());
}

/// To rank r what lies r * bytes_apart behind the beginning.
void NcclTransfer::send_to_others(std::size_t bytes_apart) {
    const auto* const begin = static_cast<const std::byte*>(operation_.from);
    for (int rank = 0; rank < size_; ++rank)
        if (rank != rank_) send_to(rank, begin + static_cast<std::size_t>(rank) * bytes_apart);
}

/// One part behind another.
void NcclTransfer::receive_from_others(std::byte* into) {
    for (int rank = 0; rank < size_; ++rank)
        if (rank != rank_)
            receive_from(rank, into + static_cast<std::size_t>(rank) * operation_.bytes());
}

bool NcclTransfer::is_done() {
    int done = 0;
    const int count = static_cast<int>(requests_.size());
    MPI_Testall(count, requests_.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
}

const void* NcclTransfer::own_part() const {
    const auto* const begin = static_cast<const std::byte*>(operation_.from);
    if (operation_.kind != NcclKind::reduce_scatter) return begin;
    return begin + static_cast<std::size_t>(rank_) * operation_.bytes();
}

void NcclTransfer::finish() {
    const auto own = static_cast<std::size_t>(rank_);
    if (operation_.kind == NcclKind::all_gather)
        std::memmove(static_cast<std::byte*>(operation_.to) + own * operation_.bytes(),
                     operation_.from,
                     operation_.bytes());
    if (!adds_up()) return;
    Sum sum{{},
            operation_.count,
            operation_.kind == NcclKind::all_reduce ? -1 : (rank_ + 1) % size_,
            operation_.to};
    for (int rank = 0; rank < size_; ++rank)
        sum.parts.push_back(received_.data() + static_cast<std::size_t>(rank) * operation_.bytes());
    sum.parts[own] = own_part();
    add_up(sum, operation_.type);
}

void NcclTransfer::leave() {
    for (MPI_Request& request : requests_)
        if (request != MPI_REQUEST_NULL) {
            MPI_Cancel(&request);
            MPI_Request_free(&request);
        }
}

}  // namespace simcuda
