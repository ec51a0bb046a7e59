// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2: its C functions, over MPI between the program's own ranks.
#include "nccl/nccl_types.hpp"
#include "simcuda/machine.hpp"
#include "simcuda/nccl_comm.hpp"
#include "simcuda/settings.hpp"

#include <atomic>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace simcuda {
namespace {

namespace nccl = lockstep::nccl;
using nccl::Comm;
using nccl::DataTypeCode;
using nccl::RedOp;
using nccl::Result;

/// What the calling thread has open.
struct Group {
    int depth = 0;
    std::map<NcclComm*, std::vector<NcclIssued>> issued;
};
thread_local Group group;

std::atomic<const char*> last_error = "";

Result refuse(const char* why) {
    last_error = why;
    return nccl::invalid_usage;
}

NcclComm& of(Comm comm) {
    return *reinterpret_cast<NcclComm*>(comm);
}

Result end_group() {
    for (auto& [comm, issued] : std::exchange(group.issued, {})) comm->take(std::move(issued));
    return fault_of_poll() == 0 ? nccl::in_progress : nccl::unhandled_cuda_error;
}

Result issue(const NcclOperation& operation, Comm comm, void* stream) {
    if (of(comm).is_over()) return refuse("the communicator was aborted");
    group.issued[&of(comm)].push_back({operation, &stream_of(stream)});
    return group.depth > 0 ? nccl::success : end_group();
}

const char* why_no_ranks(int size, int rank) {
    int is_initialized = 0, level = 0, ranks = 1, own = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized == 0) return "MPI, which carries the simulation's bytes, is not initialized";
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) return "the simulation needs MPI_THREAD_MULTIPLE";
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    return ranks == size && own == rank ? nullptr : "the ranks are not those of MPI_COMM_WORLD";
}

/// As NCCL's start: what follows is in the background.
Result init(Comm* comm, int size, const nccl::UniqueId& id, int rank) {
    if (const char* const why = why_no_ranks(size, rank)) return refuse(why);
    int tag = 0;
    std::memcpy(&tag, id.internal.data(), sizeof tag);
    *comm = reinterpret_cast<Comm>(new NcclComm(tag));
    return nccl::in_progress;
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

extern "C" {

Result ncclGetVersion(int* version) {
    *version = settings().nccl_version;
    return nccl::success;
}

Result ncclGetUniqueId(nccl::UniqueId* id) {
    static std::atomic<int> ids = 0;
    const int number = ++ids;
    *id = {};
    std::memcpy(id->internal.data(), &number, sizeof number);
    return nccl::success;
}

const char* ncclGetErrorString(Result result) {
    static const std::map<Result, const char*> texts = {
        {nccl::success, "no error"},
        {nccl::unhandled_cuda_error, "unhandled cuda error"},
        {nccl::invalid_usage, "invalid usage"},
        {nccl::in_progress, "NCCL operation in progress"}};
    const auto found = texts.find(result);
    return found == texts.end() ? "internal error" : found->second;
}

const char* ncclGetLastError(Comm) {
    return last_error;
}

Result ncclCommInitRankConfig(
    Comm* comm, int size, nccl::UniqueId id, int rank, const nccl::Config*) {
    return init(comm, size, id, rank);
}

Result ncclCommInitRankScalable(
    Comm* comm, int size, int rank, int, const nccl::UniqueId* ids, const nccl::Config*) {
    return init(comm, size, ids[0], rank);
}

Result ncclCommGetAsyncError(Comm comm, Result* state) {
    *state = fault_of_poll() == 0 ? of(comm).state() : nccl::unhandled_cuda_error;
    return nccl::success;
}

Result ncclCommFinalize(Comm comm) {
    of(comm).finalize();
    return nccl::in_progress;
}

Result ncclCommDestroy(Comm comm) {
    of(comm).end();
    return nccl::success;
}

Result ncclCommAbort(Comm comm) {
    of(comm).end();
    return nccl::success;
}

Result ncclCommRevoke(Comm comm, int) {
    of(comm).end();
    return nccl::in_progress;
}

Result ncclGroupStart() {
    ++group.depth;
    return nccl::success;
}

Result ncclGroupEnd() {
    return --group.depth == 0 ? end_group() : nccl::success;
}

Result ncclSend(
    const void* from, std::size_t count, DataTypeCode type, int peer, Comm comm, void* stream) {
    return issue({NcclKind::send, from, nullptr, count, type, peer}, comm, stream);
}

Result ncclRecv(void* to, std::size_t count, DataTypeCode type, int peer, Comm comm, void* stream) {
    return issue({NcclKind::receive, nullptr, to, count, type, peer}, comm, stream);
}

Result ncclAllGather(
    const void* from, void* to, std::size_t count, DataTypeCode type, Comm comm, void* stream) {
    return issue({NcclKind::all_gather, from, to, count, type}, comm, stream);
}

Result ncclReduce(const void* from,
                  void* to,
                  std::size_t count,
                  DataTypeCode type,
                  RedOp,
                  int root,
                  Comm comm,
                  void* stream) {
    return issue({NcclKind::reduce, from, to, count, type, root}, comm, stream);
}

Result ncclReduceScatter(const void* from,
                         void* to,
                         std::size_t count,
                         DataTypeCode type,
                         RedOp,
                         Comm comm,
                         void* stream) {
    return issue({NcclKind::reduce_scatter, from, to, count, type}, comm, stream);
}

Result ncclAllReduce(const void* from,
                     void* to,
                     std::size_t count,
                     DataTypeCode type,
                     RedOp,
                     Comm comm,
                     void* stream) {
    return issue({NcclKind::all_reduce, from, to, count, type}, comm, stream);
}

Result ncclMemAlloc(void** data, std::size_t bytes) {
    *data = machine().allocate(Machine::device(), bytes);
    return *data == nullptr ? nccl::unhandled_cuda_error : nccl::success;
}

Result ncclMemFree(void* data) {
    machine().synchronize(Machine::device());
    machine().memory.release(data);
    return nccl::success;
}

Result ncclCommRegister(Comm, void* data, std::size_t, void** handle) {
    *handle = data;
    return nccl::success;
}

Result ncclCommDeregister(Comm, void*) {
    return nccl::success;
}

}  // extern "C"
