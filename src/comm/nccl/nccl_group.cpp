// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_group.hpp"

#include "base/aligned_floats.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep {
namespace {

constexpr std::uint32_t mark_bits = 0xffffffff;  // a NaN that no arithmetic gives
constexpr int most_calls = 64;   // to mark a group's parts; those of further ranks are not known
constexpr int silent_looks = 2;  // without what was asked for

/// The stripes of one bucket, one for each rank.
struct Stripes {
    float* vector;
    const FlatLayout& layout;
    std::size_t bucket;
    int ranks;

    std::span<float> of(int rank) const {
        const FloatRange range = layout.stripe(bucket, rank, ranks);
        return {vector + range.begin, range.size()};
    }

    /// NCCL's own reduce-scatter and all-gather know equal parts only.
    bool are_equal() const {
        for (int rank = 1; rank < ranks; ++rank)
            if (of(rank).size() != of(0).size()) return false;
        return true;
    }
};

/// Memory of ncclMemAlloc and its registration; either may have failed.
struct RegisteredMemory {
    RegisteredMemory(NcclCommunicator::Inside& owner, std::size_t bytes) : inside(owner) {
        const NcclApi& nccl = runtime->nccl();
        if (!nccl.can_register() || nccl.mem_alloc(&data, bytes) != nccl::success) return;
        inside.handle().use([&](nccl::Comm& comm) {
            is_registered = nccl.comm_register(comm, data, bytes, &handle) == nccl::success;
        });
    }
    ~RegisteredMemory() {
        try {
            if (is_registered)
                inside.handle().use([&](nccl::Comm& comm) {
                    return runtime->nccl().comm_deregister(comm, handle);
                });
        } catch (const Error&) {
            // An abort has begun: the registration goes with the communicator.
        }
        if (data != nullptr && !runtime->is_wedged()) runtime->nccl().mem_free(data);
    }
    RegisteredMemory& operator=(RegisteredMemory&&) = delete;

    NcclCommunicator::Inside& inside;
    const std::shared_ptr<GpuRuntime> runtime = inside.runtime();
    void *data = nullptr, *handle = nullptr;
    bool is_registered = false;
};

}  // namespace

NcclGroup::NcclGroup(NcclCommunicator::Inside& inside) : inside_(inside) {
    inside_.handle().call("ncclGroupStart",
                          [&](nccl::Comm&) { return inside_.nccl().group_start(); });
}

NcclGroup::~NcclGroup() {
    if (!is_open_) return;
    try {
        inside_.handle().use([&](nccl::Comm&) { return inside_.nccl().group_end(); });
    } catch (const Error&) {
        return;  // an abort has begun: what the group holds went with the communicator
    }
}

void NcclGroup::close() {
    is_open_ = false;
    inside_.handle().call("ncclGroupEnd", [&](nccl::Comm&) { return inside_.nccl().group_end(); });
}

void NcclGroup::end(const std::string& what) {
    close();
    inside_.settle(what);
}

void NcclGroup::send(int peer, std::span<const float> floats) {
    add("ncclSend", inside_.nccl().send, floats.data(), floats.size(), nccl::type_float32, peer);
}

void NcclGroup::receive(int peer, std::span<float> floats) {
    add("ncclRecv", inside_.nccl().recv, floats.data(), floats.size(), nccl::type_float32, peer);
}

void NcclGroup::add_up(std::span<std::int64_t> numbers) {
    std::int64_t* const data = numbers.data();
    const auto& all_reduce = inside_.nccl().all_reduce;
    add("ncclAllReduce", all_reduce, data, data, numbers.size(), nccl::type_int64, nccl::sum);
}

void NcclGroup::scatter_sum(float* vector, const FlatLayout& layout, std::size_t bucket) {
    const int rank = inside_.bootstrap().rank(), size = inside_.bootstrap().size();
    const Stripes stripes{vector, layout, bucket, size};
    constexpr auto type = nccl::type_float32;
    if (stripes.are_equal()) {
        const auto& reduce_scatter = inside_.nccl().reduce_scatter;
        const std::span<float> own = stripes.of(rank);
        add("ncclReduceScatter",
            reduce_scatter,
            stripes.of(0).data(),
            own.data(),
            own.size(),
            type,
            nccl::sum);
        return;
    }
    const auto& reduce = inside_.nccl().reduce;
    for (int owner = 0; owner < size; ++owner) {
        const std::span<float> stripe = stripes.of(owner);
        float* const data = stripe.data();
        if (stripe.empty()) continue;
        add("ncclReduce", reduce, data, data, stripe.size(), type, nccl::sum, owner);
    }
}

bool NcclGroup::gather_equal_stripes(float* vector, const FlatLayout& layout, std::size_t bucket) {
    const int rank = inside_.bootstrap().rank(), size = inside_.bootstrap().size();
    const Stripes stripes{vector, layout, bucket, size};
    if (!stripes.are_equal()) return false;
    const auto& all_gather = inside_.nccl().all_gather;
    const std::span<float> own = stripes.of(rank);
    float* const all = stripes.of(0).data();
    if (!own.empty())
        add("ncclAllGather", all_gather, own.data(), all, own.size(), nccl::type_float32);
    return true;
}

NcclBuffer::NcclBuffer(NcclCommunicator& communicator, std::size_t bytes) {
    NcclCommunicator::Inside& inside = communicator.inside();
    inside.guarded([&] {
        auto registered = std::make_shared<RegisteredMemory>(inside, bytes);
        const auto all = gather_all(inside.bootstrap(),
                                    registered->is_registered ? "yes" : "no",
                                    inside.options().collective_deadline_s,
                                    "registration of a buffer with NCCL");
        is_registered_ = std::ranges::count(all, "yes") == inside.bootstrap().size();
        if (is_registered_) {
            memory_ = {registered, registered->data};
            return;
        }
        registered.reset();
        const auto plain = std::make_shared<CudaMemory>(make_memory(inside.runtime(), bytes));
        memory_ = {plain, plain->value()};
    });
}

std::vector<AwaitedPart> awaited_parts(const StripeMoves& moves, float* received) {
    const std::size_t last_stripe = moves.sums.empty() ? 0 : moves.sums.back().received;
    std::vector<AwaitedPart> parts;
    for (const auto& [peer, place] : moves.receives) {
        if (place.begin < last_stripe) continue;
        if (parts.empty() || parts.back().peer != peer) parts.push_back({peer, nullptr});
        parts.back().last = received + place.end - 1;
    }
    return parts;
}

std::vector<AwaitedPart> awaited_values(const FlatLayout& layout,
                                        const StripeTeam& team,
                                        float* values) {
    std::vector<AwaitedPart> parts;
    for (std::size_t b = layout.bucket_count(); b-- > 0 && parts.size() + 1 < team.ranks.size();)
        for (const AwaitedPart& part : awaited_parts(value_moves(layout, team, b), values))
            if (std::ranges::find(parts, part.peer, &AwaitedPart::peer) == parts.end())
                parts.push_back(part);
    return parts;
}

/// Pages of their own: CUDA locks whole ones, and each once.
struct GroupWatch::Room {
    Room(const PageLock& how, std::size_t words)
        : pages(whole_pages(words * sizeof(std::uint32_t))), lock(how, pages.bytes()) {}
    std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(pages.bytes().data()); }

    Pages pages;
    LockedPages lock;
};

GroupWatch::GroupWatch(NcclCommunicator::Inside& inside)
    : inside_(inside),
      beside_(make_stream(inside.runtime())),
      copied_(make_event(inside.runtime())) {
    try {
        const auto ranks = static_cast<std::size_t>(inside.bootstrap().size());
        room_ = std::make_unique<Room>(gpu_page_lock(inside.runtime()), ranks);
    } catch (const Error&) {
        room_.reset();  // a limit of locked memory: whose parts are missing is not known then
    }
    inside_.on_long_wait([this] { look(); },
                         [this] {
                             if (listener_) listener_({});
                         });
}

GroupWatch::~GroupWatch() {
    inside_.on_long_wait({}, {});
    if (!is_room_free()) static_cast<void>(room_.release());
}

bool GroupWatch::is_room_free() const {
    try {
        return !inside_.runtime()->is_wedged() && (!copying_ || inside_.has_passed(copied_));
    } catch (const Error&) {
        return false;
    }
}

void GroupWatch::begin(const GpuStand& stand, std::vector<AwaitedPart> parts) {
    forget_passed();
    auto group = std::make_shared<Group>(Group{.stand = stand,
                                               .parts = std::move(parts),
                                               .begun = make_event(inside_.runtime()),
                                               .end = make_event(inside_.runtime())});
    mark(group->parts);
    record(*inside_.runtime(), group->begun, inside_.stream());
    groups_.push_back(std::move(group));
}

void GroupWatch::end() {
    Group& group = *groups_.back();
    record(*inside_.runtime(), group.end, inside_.stream());
    group.is_taken = true;
}

void GroupWatch::forget_passed() {
    while (!groups_.empty() && groups_.front()->is_taken &&
           inside_.has_passed(groups_.front()->end))
        groups_.pop_front();
}

/// If ranks send as much as their neighbours the places are evenly spaced: one call marks all.
void GroupWatch::mark(std::vector<AwaitedPart>& parts) {
    const CudaApi& cuda = inside_.cuda();
    std::size_t first = 0;
    for (int calls = 0; first < parts.size() && calls < most_calls; ++calls) {
        std::size_t end = first + 1;
        const auto step_before = [&](std::size_t i) { return parts[i].last - parts[i - 1].last; };
        while (end < parts.size() && step_before(end) > 0 &&
               step_before(end) == step_before(first + 1))
            ++end;
        const std::ptrdiff_t apart = end - first > 1 ? step_before(end - 1) : 1;
        check_cuda(cuda,
                   cuda.mark_async(parts[first].last,
                                   static_cast<std::size_t>(apart) * sizeof(float),
                                   end - first,
                                   inside_.stream()),
                   "cudaMemset2DAsync");
        first = end;
    }
    parts.resize(first);
}

void GroupWatch::look() {
    if (!listener_) return;
    forget_passed();
    if (groups_.empty()) return listener_({});
    const std::shared_ptr<Group>& group = groups_.front();
    if (inside_.has_passed(group->begun)) look_inside(group);
    listener_(group->stand);
}

/// By what the look before has asked for.
void GroupWatch::look_inside(const std::shared_ptr<Group>& group) {
    GpuStand& stand = group->stand;
    stand.place = GpuPlace::inside;
    if (!room_ || group->parts.empty()) return;
    if (copying_ && !inside_.has_passed(copied_)) {
        if (++unanswered_ >= silent_looks) stand.place = GpuPlace::silent;
        return;
    }
    unanswered_ = 0;
    if (copying_ == group) {
        stand.missing.clear();
        for (std::size_t i = 0; i < group->parts.size(); ++i)
            if (room_->words()[i] == mark_bits) stand.missing.push_back(group->parts[i].peer);
        stand.arrived = static_cast<int>(group->parts.size() - stand.missing.size());
    }
    copy(*group);
    copying_ = group;
}

void GroupWatch::copy(const Group& group) {
    const GpuRuntime& runtime = *inside_.runtime();
    std::uint32_t* to = room_->words();
    for (const AwaitedPart& part : group.parts)
        copy_async(runtime, to++, part.last, sizeof(std::uint32_t), beside_.value());
    record(runtime, copied_, beside_.value());
}

}  // namespace lockstep
