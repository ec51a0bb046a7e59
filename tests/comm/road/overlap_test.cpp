// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/reducer.hpp"
#include "lockstep/core/clock.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;

constexpr double link_s = 0.008, backward_s = 0.009;  // each for one bucket
constexpr std::size_t tensors = 20;

void sleep_for(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// One rank behind a link that carries a bucket at a time, and only while somebody holds on to it:
/// what a transport without progress of its own is like.
class SlowExchange : public Exchange {
  public:
    explicit SlowExchange(const FlatLayout& layout) : layout_(layout), slot_(layout.size()) {}

    float* slot(int) override { return slot_.data(); }
    float* values() override { return slot_.data(); }
    FloatRange own_stripe(std::size_t bucket) const override { return layout_.bucket(bucket); }
    void arrive(std::size_t) override {}
    const float* reduce(std::size_t bucket, Wait) override {
        if (bucket != layout_.state_bucket()) sleep_for(link_s);
        return slot_.data();
    }
    void publish() override {}
    std::string_view name() const override { return "slow"; }
    double take_wait_s() override { return 0; }

  private:
    const FlatLayout layout_;
    std::vector<float> slot_;
};

/// Of one step of a deep model, every tensor of which is a bucket.
struct StepTimes {
    double step_s;
    OverlapTimes overlap;
};

StepTimes run_step(ProgressMode mode) {
    const std::vector<std::size_t> counts(tensors, 16);
    const FlatLayout layout(counts, 0, BucketLimits{64, 64});
    const TreePlan plan(1, 1);
    SlowExchange exchange(layout);
    Reducer reducer(layout, plan, 0, exchange, {mode, {}});
    const double begin_s = now_s();
    reducer.begin_step();
    reducer.begin_leaf();
    for (std::size_t tensor = tensors; tensor-- > 0;) {
        sleep_for(backward_s);
        reducer.add(tensor);
    }
    reducer.end_leaf();
    reducer.finish();
    return {now_s() - begin_s, reducer.take_overlap()};
}

TEST(Overlap, HidesASlowLinkBehindBackward) {
    double exposed = 1;  // other work on the machine exposes more, never less
    for (int attempt = 0; attempt < 8 && exposed > 0.2; ++attempt) {
        const OverlapTimes overlap = run_step(ProgressMode::thread).overlap;
        EXPECT_GE(overlap.busy_s, tensors * link_s);
        exposed = std::min(exposed, overlap.exposed_s / overlap.busy_s);
    }
    EXPECT_LE(exposed, 0.2);
}

TEST(Overlap, HidesNothingInLine) {
    const StepTimes times = run_step(ProgressMode::in_line);
    EXPECT_GE(times.step_s, tensors * (backward_s + link_s));
}

}  // namespace
