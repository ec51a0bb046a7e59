// SPDX-License-Identifier: Apache-2.0
#include "simcuda/nccl_comm.hpp"

#include "lockstep/core/host_name.hpp"

#include "simcuda/machine.hpp"
#include "simcuda/settings.hpp"

#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
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

std::size_t bytes_of(const NcclOperation& operation) {
    return operation.count * bytes_of(operation.type);
}

/// That a rank has to send to others, by the way that sends the least.
std::size_t traffic(const NcclOperation& operation, int rank, int size) {
    const std::size_t bytes = bytes_of(operation), others = static_cast<std::size_t>(size - 1);
    switch (operation.kind) {
        case NcclKind::receive:
            return 0;
        case NcclKind::send:
        case NcclKind::reduce:
            return rank == operation.root ? 0 : bytes;
        case NcclKind::all_reduce:
            return 2 * others * bytes / static_cast<std::size_t>(size);
        case NcclKind::all_gather:
        case NcclKind::reduce_scatter:
            break;
    }
    return others * bytes;
}

/// A rank's messages of one operation, under way. Every rank's part goes straight to whom it is
/// for. Sums are taken there, in the order of a ring that begins elsewhere for each part of the
/// data: the same on all ranks, and not the order of ranks, as with NCCL.
///
/// All of a group are begun before any is waited for; those between two ranks match in the order
/// in which they were begun.
class NcclTransfer {
  public:
    NcclTransfer(const NcclOperation& operation, MPI_Comm ranks)
        : operation_(operation),
          bytes_(bytes_of(operation)),
          from_(static_cast<const std::byte*>(machine().memory.behind(operation.from))),
          to_(static_cast<std::byte*>(machine().memory.behind(operation.to))),
          ranks_(ranks) {
        MPI_Comm_rank(ranks_, &rank_);
        MPI_Comm_size(ranks_, &size_);
        if (bytes_ > INT_MAX) die("more bytes than fit one message of MPI");
        if (adds_up()) received_.resize(static_cast<std::size_t>(size_) * bytes_);
        begin();
    }

    bool is_done() {
        int done = 0;
        const int count = static_cast<int>(requests_.size());
        MPI_Testall(count, requests_.data(), &done, MPI_STATUSES_IGNORE);
        return done != 0;
    }

    /// Writes the result, when all is done.
    void finish() {
        if (operation_.kind == NcclKind::all_gather)
            std::memmove(to_ + begin_of(rank_), from_, bytes_);
        if (!adds_up()) return;
        Sum sum{{},
                operation_.count,
                operation_.kind == NcclKind::all_reduce ? -1 : (rank_ + 1) % size_,
                to_};
        for (int rank = 0; rank < size_; ++rank)
            sum.parts.push_back(received_.data() + begin_of(rank));
        const bool is_cut = operation_.kind == NcclKind::reduce_scatter;
        sum.parts[static_cast<std::size_t>(rank_)] = from_ + (is_cut ? begin_of(rank_) : 0);
        add_up(sum, operation_.type);
    }

    /// Leaves what is under way: the communicator is aborted.
    void leave() {
        for (MPI_Request& request : requests_)
            if (request != MPI_REQUEST_NULL) {
                MPI_Cancel(&request);
                MPI_Request_free(&request);
            }
    }

  private:
    void begin() {
        switch (operation_.kind) {
            case NcclKind::send:
                return send_to(operation_.root, from_);
            case NcclKind::receive:
                return receive_from(operation_.root, to_);
            case NcclKind::reduce:
                return rank_ == operation_.root ? receive_from_others(received_.data())
                                                : send_to(operation_.root, from_);
            case NcclKind::all_gather:
                receive_from_others(to_);
                return send_to_others(0);
            case NcclKind::reduce_scatter:
                receive_from_others(received_.data());
                return send_to_others(bytes_);
            case NcclKind::all_reduce:
                receive_from_others(received_.data());
                return send_to_others(0);
        }
    }
    bool adds_up() const {
        return operation_.kind == NcclKind::all_reduce ||
               operation_.kind == NcclKind::reduce_scatter ||
               (operation_.kind == NcclKind::reduce && rank_ == operation_.root);
    }
    /// Of a rank's part, where each has one.
    std::size_t begin_of(int rank) const { return static_cast<std::size_t>(rank) * bytes_; }

    void send_to(int rank, const void* data) {
        const int bytes = static_cast<int>(bytes_);
        MPI_Isend(data, bytes, MPI_BYTE, rank, 0, ranks_, &requests_.emplace_back());
    }
    void receive_from(int rank, void* data) {
        const int bytes = static_cast<int>(bytes_);
        MPI_Irecv(data, bytes, MPI_BYTE, rank, 0, ranks_, &requests_.emplace_back());
    }
    /// To rank r what lies r * bytes_apart behind the beginning.
    void send_to_others(std::size_t bytes_apart) {
        for (int rank = 0; rank < size_; ++rank)
            if (rank != rank_) send_to(rank, from_ + static_cast<std::size_t>(rank) * bytes_apart);
    }
    /// One part behind another.
    void receive_from_others(std::byte* into) {
        for (int rank = 0; rank < size_; ++rank)
            if (rank != rank_) receive_from(rank, into + begin_of(rank));
    }

    NcclOperation operation_;
    std::size_t bytes_;
    const std::byte* from_;
    std::byte* to_;
    MPI_Comm ranks_;
    int rank_ = 0, size_ = 1;
    std::vector<MPI_Request> requests_;
    std::vector<std::byte> received_;  ///< a part from each rank that adds up
};

}  // namespace

void NcclLog::begin(MPI_Comm ranks) {
    MPI_Comm_rank(ranks, &rank_);
    MPI_Comm_size(ranks, &size_);
    hosts_.resize(static_cast<std::size_t>(size_));
    const std::uint64_t own =
        std::hash<std::string>()(lockstep::host_name() + '/' + variable("NCCL_HOSTID"));
    MPI_Allgather(&own, 1, MPI_UINT64_T, hosts_.data(), 1, MPI_UINT64_T, ranks);
    say("NCCL version 2.28.9+cuda13.0");
    say("NET/IB : No device found.");
    say("NET/Socket : Using [0]lo:127.0.0.1<0>");
}

void NcclLog::connect(const NcclOperation& operation) {
    if (operation.kind == NcclKind::receive || size_ == 1) return;
    const int peer = operation.kind == NcclKind::send ? operation.root : (rank_ + 1) % size_;
    if (peer == rank_ || !connected_.insert(peer).second) return;
    const auto host = [&](int rank) { return hosts_[static_cast<std::size_t>(rank)]; };
    if (host(peer) == host(rank_))
        say(fmt::format("Channel 00 : {0}[{0}] -> {1}[{1}] via SHM/direct/direct", rank_, peer));
    else
        say(fmt::format(
            "Channel 00/0 : {0}[{0}] -> {1}[{1}] [send] via NET/Socket/0", rank_, peer));
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
        sent_bytes += traffic(issued.operation, rank, size);
        transfers->emplace_back(issued.operation, ranks_);
    }
    for (NcclTransfer& transfer : *transfers)
        for (Pause pause; !is_over_ && !transfer.is_done();) pause.take();
    for (NcclTransfer& transfer : *transfers) is_over_ ? transfer.leave() : transfer.finish();
    // What MPI cannot take back may still be written.
    if (is_over_) static_cast<void>(transfers.release());
}

}  // namespace simcuda
