// SPDX-License-Identifier: Apache-2.0
// An NCCL of host memory over threads, with every trouble that the real one can make, and a strict
// eye on its user. It shows what our code does, not what NCCL does. Between processes there is that
// of tests/simcuda.
#pragma once

#include "comm/nccl/fake_cuda.hpp"
#include "nccl/nccl_api.hpp"

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

/// One NCCL for all ranks (threads) of a test. Set the knobs before the ranks start.
class FakeNccl {
  public:
    explicit FakeNccl(FakeCuda& cuda) : cuda_(cuda) {}

    /// An operation as all ranks must see it.
    struct Op {
        std::string kind;
        std::size_t count = 0;
        int type = 0, root = 0;  ///< or the peer
        std::size_t bytes() const;
        bool operator==(const Op&) const = default;
    };
    /// And one rank's memory.
    struct Posted {
        const void* from = nullptr;
        void* to = nullptr;
    };

    /// The table of one rank's process. Functions newer than `version` are missing in it.
    NcclApi api();

    int version = 22809;
    int polls_to_start = 3;         ///< of ncclInProgress before a communicator is ready
    int polls_to_launch = 2;        ///< likewise before a group reaches its stream
    std::set<int> never_ready;      ///< ranks whose start hangs
    nccl::Result init_result = 0;   ///< what the init call returns at once
    std::optional<int> hanging_op;  ///< the n-th group of each communicator never ends
    std::optional<int> failing_op;  ///< when rank 1 issues it, the communicator has an error
    std::optional<int> refusing_registration;  ///< a rank that cannot register memory
    float wrong_by = 0;                        ///< added to every sum
    std::set<std::string> stuck_abort;  ///< communicators whose abort hangs until release_aborts()

    /// Lets hanging aborts return, and waits until they have.
    void release_aborts();

    /// "init gradients", "revoke gradients", "abort gradients" ..., in the order of the calls.
    std::vector<std::string> calls();
    int used_ids();

    /// Bytes that each rank had to send to others since the last call, whatever way NCCL chooses.
    std::map<int, std::size_t> take_sent_bytes();

  private:
    struct Comm;
    /// From one rank to another; not any more where one of them has aborted.
    struct Parcel {
        bool is_sender_first = false;
        std::size_t bytes = 0;
        Posted posted;
        bool is_done = false;
        std::vector<const Comm*> ends;
    };
    /// One collective of one group of ranks.
    struct Record {
        Op op;
        std::vector<std::optional<Posted>> posted;
        int arrived = 0;
        bool is_done = false;
    };
    struct Group {
        int size = 0, joined = 0;
        std::list<Record> records;
        std::vector<std::size_t> next;  ///< by rank
        std::map<std::pair<int, int>, std::deque<std::shared_ptr<Parcel>>> unmatched;
    };
    struct Issued {
        Op op;
        Posted posted;
        GpuStream stream;
    };
    struct Comm {
        std::shared_ptr<Group> group;
        std::string name;
        int rank = 0, polls_left = 0, launched = 0;
        nccl::Result async = nccl::success;
        bool is_ready = false, is_revoked = false, is_gone = false, is_finalized = false;
        bool is_over() const { return is_gone || is_revoked; }
        std::vector<std::function<void()>> launches;  ///< not yet on their stream
        int launch_polls = 0;
    };
    /// What a rank's thread has open.
    struct Process {
        int depth = 0;
        std::map<Comm*, std::vector<Issued>> grouped;
    };

    Comm& comm_of(nccl::Comm handle, const char* who);
    nccl::Result init(
        nccl::Comm* comm, int size, int rank, const nccl::UniqueId& id, const nccl::Config& config);
    nccl::Result poll(nccl::Comm handle, nccl::Result* state);
    nccl::Result issue(Process& process, nccl::Comm handle, Op op, Posted posted, GpuStream stream);
    nccl::Result end_group(Process& process);
    void launch(Comm& comm, const std::vector<Issued>& group);
    FakeCuda::Task parcel_task(const Comm& comm, const Op& op, Posted posted);
    FakeCuda::Task record_task(const Comm& comm, const Op& op, Posted posted);
    bool step(const Comm& comm, Record& record, Posted posted);
    bool step(Parcel& parcel, const Op& op, Posted posted);
    void compute(const Record& record);
    void add_life(NcclApi& api);
    void add_ends(NcclApi& api);
    void add_operations(NcclApi& api, const std::shared_ptr<Process>& process);
    void add_memory(NcclApi& api);

    FakeCuda& cuda_;
    std::map<int, std::shared_ptr<Group>> groups_;  ///< by unique id
    std::list<Comm> comms_;
    std::map<int, std::size_t> sent_;  ///< bytes, by rank
    std::vector<std::string> calls_;
    int ids_ = 0, aborts_under_way_ = 0;
    std::condition_variable_any released_;
    bool is_released_ = false;
};

}  // namespace lockstep::test
