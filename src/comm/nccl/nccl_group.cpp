// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_group.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

/// The stripes of one bucket, one for each rank.
class Stripes {
  public:
    Stripes(float* vector, const FlatLayout& layout, std::size_t bucket, int ranks)
        : vector_(vector), layout_(layout), bucket_(bucket), ranks_(ranks) {}

    std::span<float> of(int rank) const {
        const FloatRange range = layout_.stripe(bucket_, rank, ranks_);
        return {vector_ + range.begin, range.size()};
    }

    /// NCCL's own reduce-scatter and all-gather know equal parts only.
    bool are_equal() const {
        for (int rank = 1; rank < ranks_; ++rank)
            if (of(rank).size() != of(0).size()) return false;
        return true;
    }

  private:
    float* vector_;
    const FlatLayout& layout_;
    std::size_t bucket_;
    int ranks_;
};

/// Memory of ncclMemAlloc and its registration; either may have failed.
class RegisteredMemory {
  public:
    RegisteredMemory(NcclCommunicator::Inside& inside, std::size_t bytes)
        : runtime_(inside.runtime()), inside_(inside) {
        const NcclApi& nccl = runtime_->nccl();
        if (!nccl.can_register() || nccl.mem_alloc(&data_, bytes) != nccl::success) return;
        inside_.handle().use([&](nccl::Comm& comm) {
            is_registered_ = nccl.comm_register(comm, data_, bytes, &handle_) == nccl::success;
        });
    }
    ~RegisteredMemory() {
        if (is_registered_) deregister();
        if (data_ != nullptr && !runtime_->is_wedged()) runtime_->nccl().mem_free(data_);
    }
    RegisteredMemory(const RegisteredMemory&) = delete;
    RegisteredMemory& operator=(const RegisteredMemory&) = delete;

    void* data() const { return data_; }
    bool is_registered() const { return is_registered_; }

  private:
    void deregister() {
        try {
            inside_.handle().use(
                [&](nccl::Comm& comm) { return runtime_->nccl().comm_deregister(comm, handle_); });
        } catch (const Error&) {
            return;  // an abort has begun: the registration goes with the communicator
        }
    }

    std::shared_ptr<GpuRuntime> runtime_;
    NcclCommunicator::Inside& inside_;
    void *data_ = nullptr, *handle_ = nullptr;
    bool is_registered_ = false;
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
    const Stripes stripes(vector, layout, bucket, size);
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

void NcclGroup::gather_stripes(float* vector, const FlatLayout& layout, std::size_t bucket) {
    const int rank = inside_.bootstrap().rank(), size = inside_.bootstrap().size();
    const Stripes stripes(vector, layout, bucket, size);
    const std::span<float> own = stripes.of(rank);
    if (stripes.are_equal()) {
        const auto& all_gather = inside_.nccl().all_gather;
        float* const all = stripes.of(0).data();
        add("ncclAllGather", all_gather, own.data(), all, own.size(), nccl::type_float32);
        return;
    }
    for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        if (!own.empty()) send(peer, own);
        if (!stripes.of(peer).empty()) receive(peer, stripes.of(peer));
    }
}

NcclBuffer::NcclBuffer(NcclCommunicator& communicator, std::size_t bytes) {
    NcclCommunicator::Inside& inside = communicator.inside();
    inside.guarded([&] {
        auto registered = std::make_shared<RegisteredMemory>(inside, bytes);
        const auto all = gather_all(inside.bootstrap(),
                                    registered->is_registered() ? "yes" : "no",
                                    inside.options().collective_deadline_s,
                                    "registration of a buffer with NCCL");
        is_registered_ = std::ranges::count(all, "yes") == inside.bootstrap().size();
        if (is_registered_) {
            memory_ = {registered, registered->data()};
            return;
        }
        registered.reset();
        const auto plain = std::make_shared<CudaMemory>(make_memory(inside.runtime(), bytes));
        memory_ = {plain, plain->value()};
    });
}

}  // namespace lockstep
