// SPDX-License-Identifier: Apache-2.0
// A stand-in for training on a GPU that is made up: everything on one stream, nothing waited for.
#pragma once

#include "lockstep/comm/nccl_communicator.hpp"

#include "comm/nccl/fake_cuda.hpp"
#include "comm/reference.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

namespace lockstep::test {

class GpuSteps {
  public:
    GpuSteps(NcclCommunicator& communicator,
             const FlatLayout& layout,
             const TreePlan& plan,
             FakeCuda& cuda)
        : cuda_(cuda),
          api_(cuda.api({})),
          layout_(layout),
          plan_(plan),
          rank_(communicator.rank()),
          caller_(cuda.make_stream()),
          exchange_(make_nccl_exchange(communicator, layout, plan, caller_)) {}

    GpuExchange& exchange() { return *exchange_; }
    GpuStream caller() const { return caller_; }

    /// Does `work` when the stream comes to it.
    template <class Work>
    void then(Work work) {
        cuda_.then(caller_, std::move(work));
    }
    /// Gradients of `step`.
    void fill(std::uint64_t step) {
        for (const Partial& partial : plan_.partials_of_rank(rank_))
            then([to = exchange_->slot(partial.slot),
                  values = slot_values(layout_, plan_, partial, step)] {
                std::ranges::copy(values, to);
            });
    }
    void arrive() {
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) exchange_->arrive(b);
    }
    /// The sums become the values.
    void reduce() {
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) {
            const float* sum = exchange_->reduce(b, Wait::yes);
            const FloatRange own = exchange_->own_stripe(b);
            api_.copy_async(
                exchange_->values() + own.begin, sum, own.size() * sizeof(float), caller_);
        }
    }
    void run(std::uint64_t step) {
        fill(step);
        arrive();
        reduce();
        exchange_->publish();
    }

    /// All values when the stream comes here: to be looked at after wait().
    std::shared_ptr<const Floats> read_values() {
        auto values = std::make_shared<Floats>(layout_.size());
        then([from = exchange_->values(), values] {
            std::copy_n(from, values->size(), values->data());
        });
        return values;
    }

    /// Until both the exchange and the stream are done.
    void wait() {
        exchange_->wait();
        CudaApi::Event end = nullptr;
        api_.create_event(&end);
        api_.record_event(end, caller_);
        while (api_.query_event(end) != CudaApi::success) std::this_thread::yield();
        api_.destroy_event(end);
    }

  private:
    FakeCuda& cuda_;
    CudaApi api_;
    FlatLayout layout_;
    TreePlan plan_;
    int rank_;
    GpuStream caller_;
    std::unique_ptr<GpuExchange> exchange_;
};

}  // namespace lockstep::test
