// SPDX-License-Identifier: Apache-2.0
#include "simcuda/nccl_comm.hpp"

#include "simcuda/machine.hpp"
#include "simcuda/settings.hpp"

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace simcuda {
namespace {

using lockstep::nccl::Result;

std::atomic<std::uint64_t> sent_bytes = 0;

/// Two ranks share a core in tests: who polls must not keep it.
class Pause {
  public:
    void take() {
        std::this_thread::sleep_for(std::chrono::microseconds(length_us_));
        if (length_us_ < longest_us) length_us_ *= 2;
    }

  private:
    static constexpr int longest_us = 500;
    int length_us_ = 10;
};

/// Not collective over anything else: only messages with `tag`.
MPI_Comm make_ranks(int tag) {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm ranks = MPI_COMM_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Comm_create_group(MPI_COMM_WORLD, all, tag, &ranks);
    MPI_Group_free(&all);
    return ranks;
}

}  // namespace

std::uint64_t nccl_sent_bytes() {
    return sent_bytes;
}

NcclComm::NcclComm(int tag) : background_(*new Stream(Machine::device())) {
    in_background([this, tag] {
        ranks_ = make_ranks(tag);
        log_.begin(ranks_);
    });
}

void NcclComm::in_background(Stream::Task task) {
    ++not_taken_;
    background_.enqueue([this, task = std::move(task)] {
        task();
        --not_taken_;
    });
}

Result NcclComm::state() const {
    return not_taken_ > 0 ? lockstep::nccl::in_progress : lockstep::nccl::success;
}

void NcclComm::take(std::vector<NcclIssued> group) {
    Stream* const stream = group.front().stream;
    for (const NcclIssued& issued : group)
        if (issued.stream != stream) die("a group of NCCL's on several streams");
    used_ = stream;
    in_background([this, stream, group = std::move(group), number = ++groups_] {
        for (const NcclIssued& issued : group) log_.connect(issued.operation);
        stream->enqueue([this, group, number] { run(group, number); });
    });
}

void NcclComm::finalize() {
    in_background([stream = used_] {
        if (stream != nullptr) stream->drain();
    });
}

void NcclComm::end() {
    if (!is_over_.exchange(true)) background_.end();
}

void NcclComm::hold() const {
    for (Pause pause; !is_over_;) pause.take();
}

/// All of a group move at once.
void NcclComm::run(const std::vector<NcclIssued>& group, std::uint64_t number) {
    const Settings now = settings();
    if (number == now.kills_in) std::raise(SIGKILL);
    if (number == now.hangs_in) hold();
    if (is_over_) return;
    int rank = 0, size = 1;
    MPI_Comm_rank(ranks_, &rank);
    MPI_Comm_size(ranks_, &size);
    auto transfers = std::make_unique<std::vector<NcclTransfer>>();
    for (const NcclIssued& issued : group) {
        sent_bytes += issued.operation.traffic(rank, size);
        transfers->emplace_back(issued.operation, ranks_);
    }
    for (NcclTransfer& transfer : *transfers)
        for (Pause pause; !is_over_ && !transfer.is_done();) pause.take();
    for (NcclTransfer& transfer : *transfers) is_over_ ? transfer.leave() : transfer.finish();
    // What MPI cannot take back may still be written.
    if (is_over_) static_cast<void>(transfers.release());
}

}  // namespace simcuda
