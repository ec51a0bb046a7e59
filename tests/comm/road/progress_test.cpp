// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/reducer.hpp"
#include "lockstep/core/clock.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>

#include <sched.h>

namespace {

using namespace lockstep;

const std::vector<std::size_t> counts = {100, 100, 100};

/// One rank, whose sums are there at once.
class OneRankExchange : public Exchange {
  public:
    explicit OneRankExchange(const FlatLayout& layout)
        : layout_(layout), slot_(layout.size()), values_(slot_) {}

    float* slot(int) override { return slot_.data(); }
    float* values() override { return values_.data(); }
    FloatRange own_stripe(std::size_t bucket) const override { return layout_.bucket(bucket); }
    void arrive(std::size_t) override {}
    const float* reduce(std::size_t, Wait) override { return slot_.data(); }
    void publish() override {}
    std::string_view name() const override { return "one rank"; }
    double take_wait_s() override { return 0; }

  protected:
    const FlatLayout layout_;

  private:
    std::vector<float> slot_, values_;
};

/// Its buckets come back when the test lets them, from a thread that it can look at.
class GatedExchange : public OneRankExchange {
  public:
    using OneRankExchange::OneRankExchange;

    void arrive(std::size_t bucket) override {
        arrived.push_back(bucket);
        thread = std::this_thread::get_id();
        cpu = ::sched_getcpu();
        for (const double end_s = now_s() + takes_s; now_s() < end_s;) {
        }
        if (bucket == failing_bucket) throw Error("E620", "the network is gone");
    }
    const float* reduce(std::size_t bucket, Wait wait) override {
        if (bucket >= open_before && wait == Wait::no) return nullptr;
        if (bucket + 1 == arrived.size()) summed.release();
        return slot(0);
    }

    std::vector<std::size_t> arrived;
    std::thread::id thread;
    int cpu = -1;
    double takes_s = 0;  ///< each arrival
    std::size_t failing_bucket = 99;
    std::atomic<std::size_t> open_before = 99;
    std::counting_semaphore<> summed{0};
};

struct OneRank {
    FlatLayout layout{counts, 8, BucketLimits{4, 4}};
    TreePlan plan{1, 1};
    GatedExchange exchange{layout};
    Reducer reducer;

    explicit OneRank(const ProgressSettings& progress)
        : reducer(layout, plan, 0, exchange, progress) {}

    void begin() {
        reducer.begin_step();
        reducer.begin_leaf();
    }
    void run_step(const std::vector<std::size_t>& tensors = {2, 1, 0}) {
        begin();
        for (const std::size_t tensor : tensors) reducer.add(tensor);
        reducer.end_leaf();
        reducer.finish();
    }
};

const ProgressSettings on_thread = {ProgressMode::thread, {}};

int first_allowed_cpu() {
    cpu_set_t set;
    ::sched_getaffinity(0, sizeof(set), &set);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &set)) ++cpu;
    return cpu;
}

TEST(Progress, HasAThreadOnlyWhereACoreIsToSpare) {
    EXPECT_EQ(progress_mode_for(1, 1), ProgressMode::in_line);
    EXPECT_EQ(progress_mode_for(2, 2), ProgressMode::in_line);
    EXPECT_EQ(progress_mode_for(2, 1), ProgressMode::thread);
    EXPECT_EQ(progress_mode_for(16, 15), ProgressMode::thread);
    EXPECT_EQ(progress_mode_for(1, 4), ProgressMode::in_line);
}

TEST(Progress, MovesBucketsWhileTheStepGoesOn) {
    OneRank x(on_thread);
    x.begin();
    x.reducer.add(2);
    x.exchange.summed.acquire();  // the first bucket is summed: nobody has called finish()
    x.reducer.add(1);
    x.exchange.summed.acquire();
    x.reducer.add(0);
    x.reducer.end_leaf();
    x.reducer.finish();
    EXPECT_EQ(x.exchange.arrived, (std::vector<std::size_t>{0, 1, 2, 3}));
    EXPECT_NE(x.exchange.thread, std::this_thread::get_id());
}

TEST(Progress, KeepsToIndexOrderWhateverIsCompleteFirstOrNeverComes) {
    for (const ProgressMode mode : {ProgressMode::in_line, ProgressMode::thread}) {
        OneRank all({mode, {}}), some({mode, {}});
        all.run_step({0, 1, 2});
        EXPECT_EQ(all.exchange.arrived, (std::vector<std::size_t>{0, 1, 2, 3}));
        EXPECT_EQ(all.exchange.thread == std::this_thread::get_id(), mode == ProgressMode::in_line);
        some.run_step({2, 0});
        EXPECT_EQ(some.exchange.arrived.size(), 4u);
        EXPECT_EQ(some.reducer.missing().size(), 1u);
    }
}

TEST(Progress, CountsWhatTheStepsThreadGivesToSums) {
    for (const ProgressMode mode : {ProgressMode::in_line, ProgressMode::thread}) {
        OneRank x({mode, {}});
        x.exchange.takes_s = 2e-3;
        x.run_step();
        if (mode == ProgressMode::in_line)
            EXPECT_GE(x.reducer.take_launch_s(), 4 * 2e-3);
        else
            EXPECT_EQ(x.reducer.take_launch_s(), 0);
        EXPECT_EQ(x.reducer.take_launch_s(), 0);
    }
}

TEST(Progress, StaysOnItsCpuOrSaysThatItMayNotUseIt) {
    const int cpu = first_allowed_cpu();
    OneRank x({ProgressMode::thread, cpu});
    for (int step = 0; step < 20; ++step) x.run_step();
    EXPECT_EQ(x.exchange.cpu, cpu);
    EXPECT_EQ(caught_code([] { OneRank({ProgressMode::thread, CPU_SETSIZE - 1}); }), "E642");
}

TEST(Progress, LetsFinishThrowWhatTheThreadMet) {
    OneRank x(on_thread);
    x.run_step();
    x.exchange.failing_bucket = 1;
    EXPECT_EQ(caught_code([&] { x.run_step(); }), "E620");
    EXPECT_EQ(caught_code([&] { x.reducer.finish(); }), "E620");
    EXPECT_EQ(caught_code([&] { x.reducer.begin_step(); }), "E700");
}

TEST(Progress, EndsItsThreadWhileABucketIsOnItsWay) {
    OneRank x(on_thread);
    x.exchange.open_before = 0;
    x.begin();
    x.reducer.add(2);
}

constexpr double link_s = 0.008, backward_s = 0.009;  // each for one bucket
constexpr std::size_t tensors = 20;

void sleep_for(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// One rank behind a link that carries a bucket at a time, and only while somebody holds on to it:
/// what a transport without progress of its own is like.
class SlowExchange : public OneRankExchange {
  public:
    using OneRankExchange::OneRankExchange;

    const float* reduce(std::size_t bucket, Wait) override {
        if (bucket != layout_.state_bucket()) sleep_for(link_s);
        return slot(0);
    }
};

/// Of one step of a deep model, every tensor of which is a bucket.
struct StepTimes {
    double step_s;
    OverlapTimes overlap;
};

StepTimes run_step(ProgressMode mode) {
    const FlatLayout layout(std::vector<std::size_t>(tensors, 16), 0, BucketLimits{64, 64});
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

TEST(Overlap, HidesASlowLinkBehindBackwardAndNothingInLine) {
    double exposed = 1;  // other work on the machine exposes more, never less
    for (int attempt = 0; attempt < 8 && exposed > 0.2; ++attempt) {
        const OverlapTimes overlap = run_step(ProgressMode::thread).overlap;
        EXPECT_GE(overlap.busy_s, tensors * link_s);
        exposed = std::min(exposed, overlap.exposed_s / overlap.busy_s);
    }
    EXPECT_LE(exposed, 0.2);
    const StepTimes times = run_step(ProgressMode::in_line);
    EXPECT_GE(times.step_s, tensors * (backward_s + link_s));
}

}  // namespace
