// SPDX-License-Identifier: Apache-2.0
#include "simcuda/nccl_comm.hpp"

#include "lockstep/core/host_name.hpp"

#include "simcuda/machine.hpp"
#include "simcuda/settings.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

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

std::string variable(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

void replace(std::string& text, const std::string& word, const std::string& by) {
    for (auto at = text.find(word); at != text.npos; at = text.find(word, at + by.size()))
        text.replace(at, word.size(), by);
}

/// As NCCL does at its first line: null where nothing is asked for.
std::FILE* open_log() {
    const std::string systems = variable("NCCL_DEBUG_SUBSYS");
    if (variable("NCCL_DEBUG") != "INFO") return nullptr;
    if (!systems.empty() && systems.find("INIT") == systems.npos && systems != "ALL")
        return nullptr;
    std::string file = variable("NCCL_DEBUG_FILE");
    replace(file, "%h", lockstep::host_name());
    replace(file, "%p", std::to_string(::getpid()));
    replace(file, "%%", "%");
    std::FILE* const opened = file.empty() ? nullptr : std::fopen(file.c_str(), "w");
    return opened == nullptr ? stdout : opened;
}

void say(const std::string& message) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    static std::FILE* const file = open_log();
    if (file == nullptr) return;
    fmt::print(file,
               "{}:{}:{} [{}] NCCL INFO {}\n",
               lockstep::host_name(),
               ::getpid(),
               ::gettid(),
               Machine::device(),
               message);
    std::fflush(file);
}

}  // namespace

void NcclLog::begin(MPI_Comm ranks) {
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    const std::size_t named = std::hash<std::string>()(variable("NCCL_HOSTID"));
    MPI_Comm_split(machine, static_cast<int>(named & 0x7fffffff), 0, &host_);
    MPI_Comm_free(&machine);
    MPI_Comm_rank(ranks, &rank_);
    MPI_Comm_size(ranks, &size_);
    ranks_ = ranks;
    say("NCCL version 2.28.9+cuda13.0");
    say("NET/IB : No device found.");
    say("NET/Socket : Using [0]lo:127.0.0.1<0>");
}

void NcclLog::connect(const NcclOperation& operation) {
    if (operation.kind == NcclKind::receive || size_ == 1) return;
    send_to(operation.kind == NcclKind::send ? operation.root : (rank_ + 1) % size_);
}

void NcclLog::send_to(int peer) {
    if (peer == rank_ || !connected_.insert(peer).second) return;
    if (is_on_this_host(peer))
        say(fmt::format("Channel 00 : {0}[{0}] -> {1}[{1}] via SHM/direct/direct", rank_, peer));
    else
        say(fmt::format(
            "Channel 00/0 : {0}[{0}] -> {1}[{1}] [send] via NET/Socket/0", rank_, peer));
}

bool NcclLog::is_on_this_host(int peer) const {
    MPI_Group all = MPI_GROUP_NULL, here = MPI_GROUP_NULL;
    MPI_Comm_group(ranks_, &all);
    MPI_Comm_group(host_, &here);
    int found = MPI_UNDEFINED;
    MPI_Group_translate_ranks(all, 1, &peer, here, &found);
    MPI_Group_free(&all);
    MPI_Group_free(&here);
    return found != MPI_UNDEFINED;
}

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
