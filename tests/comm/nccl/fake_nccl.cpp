// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/fake_nccl.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

namespace lockstep::test {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

constexpr int scalable_since = 22300, revoke_since = 22809, register_since = 21900;

std::size_t bytes_of_type(int type) {
    return type == nccl::type_float32 ? 4 : 8;
}

double value_at(const void* data, int type, std::size_t i) {
    if (type == nccl::type_float32) return static_cast<const float*>(data)[i];
    return static_cast<double>(static_cast<const std::int64_t*>(data)[i]);
}

void set_value(void* data, int type, std::size_t i, double value) {
    if (type == nccl::type_float32)
        static_cast<float*>(data)[i] = static_cast<float>(value);
    else
        static_cast<std::int64_t*>(data)[i] = static_cast<std::int64_t>(value);
}

/// Of one operation over `bytes` (of one rank's part, where each has one) by rings and chains,
/// which send the least.
std::size_t bytes_to_send(
    const std::string& kind, std::size_t bytes, int root, int rank, int size) {
    const auto others = static_cast<std::size_t>(size - 1);
    if (kind == "recv") return 0;
    if (kind == "send" || kind == "reduce") return rank == root ? 0 : bytes;
    if (kind == "all_reduce") return 2 * others * bytes / static_cast<std::size_t>(size);
    return others * bytes;
}

}  // namespace

std::size_t FakeNccl::Op::bytes() const {
    return count * bytes_of_type(type);
}

std::map<int, std::size_t> FakeNccl::take_sent_bytes() {
    const Lock lock(cuda_.mutex());
    return std::exchange(sent_, {});
}

void FakeNccl::release_aborts() {
    std::unique_lock lock(cuda_.mutex());
    is_released_ = true;
    released_.notify_all();
    released_.wait(lock, [&] { return aborts_under_way_ == 0; });
}

std::vector<std::string> FakeNccl::calls() {
    const Lock lock(cuda_.mutex());
    return calls_;
}

int FakeNccl::used_ids() {
    const Lock lock(cuda_.mutex());
    return static_cast<int>(groups_.size());
}

FakeNccl::Comm& FakeNccl::comm_of(nccl::Comm handle, const char* who) {
    Comm& comm = *reinterpret_cast<Comm*>(handle);
    if (comm.is_gone) cuda_.complain(fmt::format("{} of a communicator that is gone", who));
    return comm;
}

nccl::Result FakeNccl::init(
    nccl::Comm* handle, int size, int rank, const nccl::UniqueId& id, const nccl::Config& config) {
    const Lock lock(cuda_.mutex());
    if (config.blocking != 0) cuda_.complain("a blocking communicator");
    if (init_result != nccl::success) return init_result;
    int number = 0;
    std::memcpy(&number, id.internal.data(), sizeof number);
    auto& group = groups_[number];
    if (!group) group = std::make_shared<Group>();
    group->size = size;
    group->next.resize(static_cast<std::size_t>(size));
    ++group->joined;
    Comm& comm = comms_.emplace_back();
    comm.group = group;
    comm.name = config.comm_name;
    comm.rank = rank;
    comm.polls_left = polls_to_start;
    *handle = reinterpret_cast<nccl::Comm>(&comm);
    calls_.push_back("init " + comm.name);
    return nccl::in_progress;
}

nccl::Result FakeNccl::poll(nccl::Comm handle, nccl::Result* state) {
    const Lock lock(cuda_.mutex());
    Comm& comm = comm_of(handle, "ncclCommGetAsyncError");
    *state = nccl::in_progress;
    if (comm.async != nccl::success) {
        *state = comm.async;
    } else if (comm.polls_left > 0) {
        --comm.polls_left;
    } else if (!comm.is_ready) {
        const bool is_complete = comm.group->joined == comm.group->size;
        comm.is_ready = is_complete && !never_ready.contains(comm.rank);
    } else if (comm.launch_polls > 0) {
        --comm.launch_polls;
    } else {
        for (const auto& launch : std::exchange(comm.launches, {})) launch();
        *state = comm.async;
    }
    return nccl::success;
}

nccl::Result FakeNccl::issue(
    Process& process, nccl::Comm handle, Op op, Posted posted, GpuStream stream) {
    const Lock lock(cuda_.mutex());
    Comm& comm = comm_of(handle, op.kind.c_str());
    if (!comm.is_ready || comm.is_revoked || comm.is_finalized) {
        cuda_.complain(op.kind + " on a communicator that is not ready");
        return nccl::invalid_usage;
    }
    process.grouped[&comm].push_back({std::move(op), posted, stream});
    return process.depth > 0 ? nccl::success : end_group(process);
}

nccl::Result FakeNccl::end_group(Process& process) {
    nccl::Result result = nccl::success;
    for (auto& [comm, group] : std::exchange(process.grouped, {})) {
        comm->launches.push_back(
            [this, comm = comm, group = std::move(group)] { launch(*comm, group); });
        comm->launch_polls = polls_to_launch;
        result = nccl::in_progress;
    }
    return result;
}

/// All of a group move at once: one piece of its stream, which is done when all are.
void FakeNccl::launch(Comm& comm, const std::vector<Issued>& group) {
    std::vector<FakeCuda::Task> tasks;
    for (const Issued& issued : group) {
        if (issued.stream != group.front().stream) cuda_.complain("a group on several streams");
        sent_[comm.rank] += bytes_to_send(
            issued.op.kind, issued.op.bytes(), issued.op.root, comm.rank, comm.group->size);
        const bool is_message = issued.op.kind == "send" || issued.op.kind == "recv";
        tasks.push_back(is_message ? parcel_task(comm, issued.op, issued.posted)
                                   : record_task(comm, issued.op, issued.posted));
    }
    const int number = comm.launched++;
    const bool fails = failing_op == number;
    const bool hangs = fails || hanging_op == number;
    if (fails && comm.rank == 1) comm.async = nccl::remote_error;
    cuda_.enqueue(group.front().stream, [&comm, hangs, tasks = std::move(tasks)] {
        if (comm.is_over()) return true;
        if (hangs) return false;
        bool is_done = true;
        for (const FakeCuda::Task& task : tasks) is_done &= task();
        return is_done;
    });
}

/// The n-th send of a pair of ranks belongs to its n-th receive.
FakeCuda::Task FakeNccl::parcel_task(const Comm& comm, const Op& op, Posted posted) {
    const bool sends = op.kind == "send";
    auto& unmatched =
        comm.group
            ->unmatched[sends ? std::pair(comm.rank, op.root) : std::pair(op.root, comm.rank)];
    std::shared_ptr<Parcel> parcel;
    if (!unmatched.empty() && unmatched.front()->is_sender_first != sends) {
        parcel = unmatched.front();
        unmatched.pop_front();
        if (parcel->bytes != op.bytes())
            cuda_.complain(
                fmt::format("{} of {} bytes meets {}", op.kind, op.bytes(), parcel->bytes));
    } else {
        parcel = unmatched.emplace_back(
            std::make_shared<Parcel>(Parcel{sends, op.bytes(), {}, false, {}}));
    }
    parcel->ends.push_back(&comm);
    return [this, parcel, op, posted] { return step(*parcel, op, posted); };
}

FakeCuda::Task FakeNccl::record_task(const Comm& comm, const Op& op, Posted posted) {
    Group& group = *comm.group;
    const std::size_t number = group.next[static_cast<std::size_t>(comm.rank)]++;
    if (group.records.size() <= number) {
        group.records.push_back({op, {}, 0, false});
        group.records.back().posted.resize(static_cast<std::size_t>(group.size));
    }
    Record& record = *std::next(group.records.begin(), static_cast<std::ptrdiff_t>(number));
    if (record.op != op)
        cuda_.complain(fmt::format("operation {}: {} of {} on one rank, {} of {} on another",
                                   number,
                                   record.op.kind,
                                   record.op.count,
                                   op.kind,
                                   op.count));
    return [this, &comm, &record, posted] { return step(comm, record, posted); };
}

/// Who comes second moves the bytes.
bool FakeNccl::step(Parcel& parcel, const Op& op, Posted posted) {
    if (posted.from != nullptr) parcel.posted.from = posted.from;
    if (posted.to != nullptr) parcel.posted.to = posted.to;
    if (parcel.is_done || parcel.posted.from == nullptr || parcel.posted.to == nullptr)
        return parcel.is_done;
    if (std::ranges::any_of(parcel.ends, &Comm::is_over)) return false;
    if (cuda_.check_live(parcel.posted.from, parcel.bytes, op.kind) &&
        cuda_.check_live(parcel.posted.to, parcel.bytes, op.kind))
        std::memcpy(parcel.posted.to, parcel.posted.from, parcel.bytes);
    return parcel.is_done = true;
}

/// The last rank to arrive does the work of all, as far as memory can tell.
bool FakeNccl::step(const Comm& comm, Record& record, Posted posted) {
    auto& mine = record.posted[static_cast<std::size_t>(comm.rank)];
    if (!mine) {
        mine = posted;
        if (++record.arrived == comm.group->size) {
            compute(record);
            record.is_done = true;
        }
    }
    return record.is_done;
}

void FakeNccl::compute(const Record& record) {
    const Op& op = record.op;
    const auto size = record.posted.size();
    const std::size_t width = bytes_of_type(op.type);
    const bool gathers = op.kind == "all_gather", scatters = op.kind == "reduce_scatter";
    const std::size_t in = op.count * (scatters ? size : 1), out = op.count * (gathers ? size : 1);
    std::vector<double> result(gathers ? out : in);
    for (std::size_t rank = 0; rank < size; ++rank) {
        const Posted& posted = *record.posted[rank];
        if (!cuda_.check_live(posted.from, in * width, op.kind)) return;
        for (std::size_t i = 0; i < in; ++i) {
            const double value = value_at(posted.from, op.type, i);
            if (gathers)
                result[rank * op.count + i] = value;
            else
                result[i] += value;
        }
    }
    for (std::size_t rank = 0; rank < size; ++rank) {
        if (op.kind == "reduce" && static_cast<int>(rank) != op.root) continue;
        const Posted& posted = *record.posted[rank];
        if (!cuda_.check_live(posted.to, out * width, op.kind)) return;
        const std::size_t first = scatters ? rank * op.count : 0;
        for (std::size_t i = 0; i < out; ++i)
            set_value(posted.to, op.type, i, result[first + i] + double(wrong_by));
    }
}

void FakeNccl::add_life(NcclApi& api) {
    api.get_version = [this](int* code) { return *code = version, nccl::success; };
    api.get_unique_id = [this](nccl::UniqueId* id) {
        const Lock lock(cuda_.mutex());
        ++ids_;
        std::memcpy(id->internal.data(), &ids_, sizeof ids_);
        return nccl::success;
    };
    api.get_error_string = [](nccl::Result) { return "a fake result"; };
    api.get_last_error = [](nccl::Comm) { return "the fake's last words"; };
    api.comm_init_rank_config =
        [this](auto* comm, int size, nccl::UniqueId id, int rank, nccl::Config* config) {
            return init(comm, size, rank, id, *config);
        };
    if (version >= scalable_since)
        api.comm_init_rank_scalable =
            [this](auto* comm, int size, int rank, int, nccl::UniqueId* ids, nccl::Config* config) {
                return init(comm, size, rank, ids[0], *config);
            };
    api.comm_get_async_error = [this](auto comm, auto* state) { return poll(comm, state); };
}

void FakeNccl::add_ends(NcclApi& api) {
    const auto called = [this](nccl::Comm handle, const char* call) -> Comm& {
        Comm& comm = comm_of(handle, call);
        calls_.push_back(fmt::format("{} {}", call, comm.name));
        return comm;
    };
    api.comm_finalize = [this, called](nccl::Comm handle) {
        const Lock lock(cuda_.mutex());
        Comm& comm = called(handle, "finalize");
        if (comm.is_revoked) cuda_.complain("finalize after revoke");
        if (!comm.launches.empty()) cuda_.complain("finalize before NCCL took all operations");
        comm.is_finalized = true;
        comm.polls_left = 2;
        return nccl::in_progress;
    };
    api.comm_destroy = [this, called](nccl::Comm handle) {
        const Lock lock(cuda_.mutex());
        Comm& comm = called(handle, "destroy");
        if (!comm.is_finalized || comm.polls_left > 0)
            cuda_.complain("destroy before finalize ended");
        comm.is_gone = true;
        return nccl::success;
    };
    api.comm_abort = [this, called](nccl::Comm handle) {
        std::unique_lock lock(cuda_.mutex());
        Comm& comm = called(handle, "abort");
        ++aborts_under_way_;
        if (stuck_abort.contains(comm.name)) released_.wait(lock, [&] { return is_released_; });
        comm.is_gone = true;
        --aborts_under_way_;
        released_.notify_all();
        return nccl::success;
    };
    if (version < revoke_since) return;
    api.comm_revoke = [this, called](nccl::Comm handle, int) {
        const Lock lock(cuda_.mutex());
        Comm& comm = called(handle, "revoke");
        comm.is_revoked = true;
        comm.async = nccl::success;
        comm.launches.clear();
        comm.polls_left = 1;
        return nccl::in_progress;
    };
}

void FakeNccl::add_operations(NcclApi& api, const std::shared_ptr<Process>& process) {
    api.group_start = [process] {
        ++process->depth;
        return nccl::success;
    };
    api.group_end = [this, process] {
        const Lock lock(cuda_.mutex());
        return --process->depth == 0 ? end_group(*process) : nccl::success;
    };
    const auto reducing = [this, process](const char* kind) {
        return [=, this](auto from, auto to, auto count, int type, auto, auto comm, auto stream) {
            return issue(*process, comm, {kind, count, type}, {from, to}, stream);
        };
    };
    api.all_reduce = reducing("all_reduce");
    api.reduce_scatter = reducing("reduce_scatter");
    api.reduce =
        [=, this](
            auto from, auto to, auto count, int type, auto, int root, auto comm, auto stream) {
            return issue(*process, comm, {"reduce", count, type, root}, {from, to}, stream);
        };
    api.all_gather = [=, this](auto from, auto to, auto count, int type, auto comm, auto stream) {
        return issue(*process, comm, {"all_gather", count, type}, {from, to}, stream);
    };
    api.send = [=, this](auto from, auto count, int type, int peer, auto comm, auto stream) {
        return issue(*process, comm, {"send", count, type, peer}, {from, nullptr}, stream);
    };
    api.recv = [=, this](auto to, auto count, int type, int peer, auto comm, auto stream) {
        return issue(*process, comm, {"recv", count, type, peer}, {nullptr, to}, stream);
    };
}

void FakeNccl::add_memory(NcclApi& api) {
    if (version < register_since) return;
    api.mem_alloc = cuda_.api({}).allocate;
    api.mem_free = cuda_.api({}).release;
    api.comm_register = [this](nccl::Comm comm, void* data, std::size_t bytes, void** handle) {
        const Lock lock(cuda_.mutex());
        const Comm& mine = comm_of(comm, "ncclCommRegister");
        if (mine.rank == refusing_registration) return nccl::invalid_usage;
        cuda_.check_live(data, bytes, "ncclCommRegister");
        calls_.push_back("register " + mine.name);
        *handle = data;
        return nccl::success;
    };
    api.comm_deregister = [this](nccl::Comm comm, void*) {
        const Lock lock(cuda_.mutex());
        calls_.push_back("deregister " + comm_of(comm, "ncclCommDeregister").name);
        return nccl::success;
    };
}

NcclApi FakeNccl::api() {
    NcclApi api;
    add_life(api);
    add_ends(api);
    add_operations(api, std::make_shared<Process>());
    add_memory(api);
    return api;
}

}  // namespace lockstep::test
