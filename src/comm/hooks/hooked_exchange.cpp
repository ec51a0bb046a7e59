// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bucket_hook.hpp"
#include "lockstep/core/error.hpp"

#include <utility>

namespace lockstep {
namespace {

class HookedExchange : public Exchange {
  public:
    HookedExchange(std::unique_ptr<Exchange> inner,
                   const FlatLayout& layout,
                   const TreePlan& plan,
                   BucketHook& hook)
        : inner_(std::move(inner)), layout_(layout), hook_(hook) {
        expect(plan.summation() == Summation::plain, "a rank's leaves are one partial, in slot 0");
    }

    FlatMemory& memory() override { return inner_->memory(); }
    float* slot(int index) override { return inner_->slot(index); }
    float* values() override { return inner_->values(); }
    FloatRange own_stripe(std::size_t bucket) const override { return inner_->own_stripe(bucket); }
    bool is_first_copy() const override { return inner_->is_first_copy(); }

    void arrive(std::size_t bucket) override {
        if (bucket == layout_.state_bucket()) inner_->arrive(bucket);
    }

    const float* reduce(std::size_t bucket, Wait wait) override {
        if (bucket == layout_.state_bucket()) return inner_->reduce(bucket, wait);
        const FloatRange range = layout_.bucket(bucket);
        hook_.sum(bucket, {slot(0) + range.begin, range.size()});
        return slot(0) + own_stripe(bucket).begin;
    }

    void publish() override { inner_->publish(); }
    std::string_view name() const override { return inner_->name(); }
    std::vector<int> awaited_ranks() const override { return inner_->awaited_ranks(); }
    void on_long_wait(StandListener listener) override {
        inner_->on_long_wait(std::move(listener));
    }
    double take_wait_s() override { return inner_->take_wait_s(); }
    std::vector<LinkTimes> take_links() override { return inner_->take_links(); }

  private:
    const std::unique_ptr<Exchange> inner_;
    const FlatLayout layout_;
    BucketHook& hook_;
};

}  // namespace

std::unique_ptr<Exchange> make_hooked_exchange(std::unique_ptr<Exchange> inner,
                                               const FlatLayout& layout,
                                               const TreePlan& plan,
                                               BucketHook& hook) {
    return std::make_unique<HookedExchange>(std::move(inner), layout, plan, hook);
}

}  // namespace lockstep
