// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_group.hpp"

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
    float* begin() const { return vector_ + layout_.bucket(bucket_).begin; }

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
    inside_.handle().call("ncclSend", [&](nccl::Comm& comm) {
        return inside_.nccl().send(
            floats.data(), floats.size(), nccl::type_float32, peer, comm, inside_.stream());
    });
}

void NcclGroup::receive(int peer, std::span<float> floats) {
    inside_.handle().call("ncclRecv", [&](nccl::Comm& comm) {
        return inside_.nccl().recv(
            floats.data(), floats.size(), nccl::type_float32, peer, comm, inside_.stream());
    });
}

void NcclGroup::add_up(std::span<std::int64_t> numbers) {
    inside_.handle().call("ncclAllReduce", [&](nccl::Comm& comm) {
        return inside_.nccl().all_reduce(numbers.data(),
                                         numbers.data(),
                                         numbers.size(),
                                         nccl::type_int64,
                                         nccl::sum,
                                         comm,
                                         inside_.stream());
    });
}

void NcclGroup::scatter_sum(float* vector, const FlatLayout& layout, std::size_t bucket) {
    const int rank = inside_.bootstrap().rank(), size = inside_.bootstrap().size();
    const Stripes stripes(vector, layout, bucket, size);
    constexpr auto type = nccl::type_float32;
    if (stripes.are_equal()) {
        inside_.handle().call("ncclReduceScatter", [&](nccl::Comm& comm) {
            const std::span<float> own = stripes.of(rank);
            return inside_.nccl().reduce_scatter(
                stripes.begin(), own.data(), own.size(), type, nccl::sum, comm, inside_.stream());
        });
        return;
    }
    for (int owner = 0; owner < size; ++owner) {
        const std::span<float> stripe = stripes.of(owner);
        if (stripe.empty()) continue;
        inside_.handle().call("ncclReduce", [&](nccl::Comm& comm) {
            return inside_.nccl().reduce(stripe.data(),
                                         stripe.data(),
                                         stripe.size(),
                                         type,
                                         nccl::sum,
                                         owner,
                                         comm,
                                         inside_.stream());
        });
    }
}

void NcclGroup::gather_stripes(float* vector, const FlatLayout& layout, std::size_t bucket) {
    const int rank = inside_.bootstrap().rank(), size = inside_.bootstrap().size();
    const Stripes stripes(vector, layout, bucket, size);
    const std::span<float> own = stripes.of(rank);
    if (stripes.are_equal()) {
        inside_.handle().call("ncclAllGather", [&](nccl::Comm& comm) {
            return inside_.nccl().all_gather(own.data(),
                                             stripes.begin(),
                                             own.size(),
                                             nccl::type_float32,
                                             comm,
                                             inside_.stream());
        });
        return;
    }
    for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        if (!own.empty()) send(peer, own);
        if (!stripes.of(peer).empty()) receive(peer, stripes.of(peer));
    }
}

}  // namespace lockstep
