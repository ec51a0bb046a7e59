// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_floats.hpp"
#include "hierarchical/exchanges.hpp"

#include <vector>

namespace lockstep {
namespace {

class SingleExchange : public Exchange {
  public:
    SingleExchange(const FlatLayout& layout, const TreePlan& plan)
        : layout_(layout), values_(make_aligned_floats(layout.size())) {
        for (int i = 0; i < plan.slots(); ++i) slots_.push_back(make_aligned_floats(layout.size()));
    }

    float* slot(int index) override { return slots_[static_cast<std::size_t>(index)].get(); }
    float* values() override { return values_.get(); }
    FloatRange own_stripe(std::size_t bucket) const override { return layout_.bucket(bucket); }
    void arrive(std::size_t) override {}
    /// V leaves of one rank are one partial: the sum is there.
    const float* reduce(std::size_t bucket, Wait) override {
        return slot(0) + layout_.bucket(bucket).begin;
    }
    void publish() override {}
    std::string_view name() const override { return "one rank"; }
    double take_wait_s() override { return 0; }

  private:
    FlatLayout layout_;
    AlignedFloats values_;
    std::vector<AlignedFloats> slots_;
};

}  // namespace

std::unique_ptr<Exchange> make_single_exchange(const FlatLayout& layout, const TreePlan& plan) {
    return std::make_unique<SingleExchange>(layout, plan);
}

}  // namespace lockstep
