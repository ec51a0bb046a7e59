// SPDX-License-Identifier: Apache-2.0
#include "collectives/back_ends.hpp"
#include "collectives/message_all_reduce.hpp"
#include "collectives/sum_kernels.hpp"

#include <array>
#include <vector>

namespace lockstep {
namespace {

/// Every rank is a worker and also the server of one chunk. Workers push each chunk to its server,
/// the server sums what came in rank order, and all workers pull the sums. Synchronous: nobody
/// goes on with a stale value.
///
///     2(P-1) a + 2(P-1)/P n b + (P-1)/P n g
///
/// The ring's bytes, but with all messages at once: P-1 senders meet at one receiver, which real
/// networks punish and this formula does not see. With one server instead of P the bytes at the
/// server are 2(P-1) n. (Li et al., Scaling distributed machine learning with the parameter server,
/// 2014.) The sum is ((0 + 1) + 2) + ...; bfloat16 is rounded once.
class ParameterServer : public MessageAllReduce {
  public:
    explicit ParameterServer(const Communicator& ranks)
        : MessageAllReduce(ranks), in_rank_order_(static_cast<std::size_t>(size()), 1) {
        in_rank_order_[0] = 0;
    }
    std::string_view name() const override { return name_of(Algorithm::parameter_server); }

  private:
    void reduce(const Elements& all) override {
        push(all);
        serve(all);
        pull(all);
    }

    void push(const Elements& all) {
        for (int peer = 0; peer < size(); ++peer) {
            if (peer == rank()) continue;
            messages().start_receive(pushed_by(peer, all), peer);
            messages().start_send(all.chunk(peer, size()), peer);
        }
        messages().finish();
    }

    void serve(const Elements& all) {
        std::vector<const void*> inputs;
        for (int peer = 0; peer < size(); ++peer) inputs.push_back(pushed_by(peer, all).data);
        const Elements mine = all.chunk(rank(), size());
        const std::array<void*, 1> outputs = {mine.data};
        sum_into(all.type, in_rank_order_, inputs, outputs, mine.count);
    }

    void pull(const Elements& all) {
        for (int peer = 0; peer < size(); ++peer) {
            if (peer == rank()) continue;
            messages().start_receive(all.chunk(peer, size()), peer);
            messages().start_send(all.chunk(rank(), size()), peer);
        }
        messages().finish();
    }

    /// Where this rank's own chunk of `peer`'s buffer is once it was pushed.
    Elements pushed_by(int peer, const Elements& all) {
        const Elements mine = all.chunk(rank(), size());
        return peer == rank() ? mine : scratch(mine, peer, size());
    }

    std::vector<int> in_rank_order_;
};

}  // namespace

std::unique_ptr<AllReduce> make_parameter_server_all_reduce(const Communicator& ranks) {
    return std::make_unique<ParameterServer>(ranks);
}

}  // namespace lockstep
