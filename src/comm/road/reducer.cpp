// SPDX-License-Identifier: Apache-2.0
// A rank computes its leaves one after another, and its slots hold the partial sums, like the
// digits of a binary counter. With four leaves, slots are written (w) and added (+):
//
//     leaf 0   slot 0 w                                  0
//     leaf 1   slot 1 w,   0 += 1                        0-1
//     leaf 2   slot 1 w                                  0-1, 2
//     leaf 3   slot 2 w,   1 += 2,   0 += 1              0-3
//
// The merges after a leaf are known when it begins. So each bucket is merged by itself as soon as
// its gradients are complete, while they may still be in cache and backward works on the next one.
// In the last leaf a merged bucket is final for this rank and goes to the exchange at once.
//
// What must never happen:
// - Buckets leave in another order than that of their indices. Backward may finish them in another
//   order on each rank; the ranks' sums meet by position, without a name. So a bucket that is
//   complete early waits for those before it (launch_ready).
// - A bucket leaves while a gradient may still be added to it: only the last micro-batch counts
//   down.
// - The merges depend on when or in which order tensors came: they are fixed by the leaf alone,
//   each element's additions are in one bucket, and so bits depend neither on buckets nor on
//   backward.
// - A bucket is forgotten because a tensor got no gradient: end_leaf() completes all, or the other
//   ranks would wait for ever.
//
// Tested: comm/reducer_test.cpp (bits of the whole tree for any transport, bucket size and order of
// tensors; missing tensors; micro-batches), comm/road/progress_test.cpp (both movers of buckets,
// order, failures, ending in mid-step; a slow link hides behind backward).

#include "lockstep/comm/reducer.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include "base/spin.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

namespace lockstep {

// A queue between backward, which finishes buckets, and the exchange, which sums them. It has two
// marks:
//
//     bucket   0  1  2  3  4  5  6
//              sums    |   on     | still in
//              are     |   their  | backward
//              known   |   way    |
//                   summed_    arrived_
//
// It is moved on by the thread of the step, at each launch and at the end, or by a separate thread
// (CommThread, below). The time in which the marks differ is the cost of communication;
// the part for which finish() waits is what the step loses.
//
// What must never happen: a bucket overtakes another. arrive() and reduce() go through the exchange
// in index order, because other ranks' calls are paired with these by nothing but their order; and
// reduce(Wait::no) that finds a bucket unfinished must not look at the next.

/// One step is: restart, launch_before (growing), finish; then sum(). The step's thread moves this
/// pipeline on.
class BucketPipeline {
  public:
    /// `exchange` must outlive the pipeline.
    BucketPipeline(Exchange& exchange, std::size_t buckets) : exchange_(exchange), sums_(buckets) {}
    virtual ~BucketPipeline() = default;
    BucketPipeline& operator=(BucketPipeline&&) = delete;

    /// Begins a step. The buckets of the last one are all summed.
    virtual void restart() {
        expect(is_idle(), "the last step is finished");
        arrived_ = summed_ = 0;
        std::ranges::fill(sums_, nullptr);
    }

    /// Announces that buckets up to `end` are complete in this rank's slots.
    virtual void launch_before(std::size_t end) {
        if (arrived_ == end && is_idle()) return;
        const double begin_s = now_s();
        arrive_before(end);
        reduce(Wait::no);
        launch_s_ += now_s() - begin_s;
    }

    /// Waits until all launched buckets are summed. Throws errors that occurred on the way.
    virtual void finish() { reduce(Wait::yes); }

    const float* sum(std::size_t bucket) const { return sums_[bucket]; }
    double take_launch_s() { return std::exchange(launch_s_, 0.0); }
    double take_busy_s() { return std::exchange(busy_s_, 0.0); }

  protected:
    void arrive_before(std::size_t end) {
        if (arrived_ < end && is_idle()) busy_since_s_ = now_s();
        while (arrived_ < end) exchange_.arrive(arrived_++);
    }

    /// Sums what has arrived. Returns true if nothing is left.
    bool reduce(Wait wait) {
        if (is_idle()) return true;
        while (!is_idle()) {
            const float* sum = exchange_.reduce(summed_, wait);
            if (sum == nullptr) return false;
            sums_[summed_++] = sum;
        }
        busy_s_ += now_s() - busy_since_s_;
        return true;
    }

  private:
    bool is_idle() const { return summed_ == arrived_; }

    Exchange& exchange_;
    std::vector<const float*> sums_;
    std::size_t arrived_ = 0, summed_ = 0;
    double busy_since_s_ = 0, busy_s_ = 0;
    double launch_s_ = 0;  ///< time of the step's thread in launch_before()
};

namespace {

void pin(std::jthread& thread, int cpu) {
    expect(cpu >= 0 && cpu < CPU_SETSIZE, "a CPU that the system can name");
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    const int failure = ::pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
    check(failure == 0, [&] {
        return Error("E642",
                     fmt::format("the communication thread cannot stay on CPU {}", cpu),
                     std::strerror(failure),
                     "let this process use that CPU, or run without a communication thread");
    });
}

/// A thread that moves buckets while the step's thread computes: on a core of its own, backward
/// never stops to communicate.
///
///     step's thread    launch_before(2)    launch_before(5)    finish() ........ all summed
///                           |                    |                |                 ^
///     this thread      wakes, polls 0 1 ... joins 2 3 4 ...   may block now         | notifies
///
/// What must never happen:
/// - Two threads are in MPI at once: it may allow one at a time only. Between the first launch and
///   the end of finish() the exchange belongs to this thread; `launched_` and `moved_` say whose it
///   is.
/// - finish() waits for a thread that has failed: the failure ends the wait, and is thrown there.
/// - The thread blocks in a sum while the step may still fail: the destructor would wait for other
///   ranks. So it polls until finish() has been called.
///
/// While buckets are on their way it polls, so that new ones join at once and a step that fails
/// need not wait for other ranks; it blocks only when the step's thread does. Between steps it
/// sleeps. The step's thread makes no MPI call from the first launch to the end of finish(): MPI
/// sees one thread at a time.
class CommThread : public BucketPipeline {
  public:
    CommThread(Exchange& exchange, std::size_t buckets, std::optional<int> cpu)
        : BucketPipeline(exchange, buckets),
          thread_([this](const std::stop_token& stopped) { run(stopped); }) {
        ::pthread_setname_np(thread_.native_handle(), "lockstep-comm");
        if (cpu) pin(thread_, *cpu);
    }

    void restart() override {
        const std::lock_guard lock(mutex_);
        expect(!failure_ && moved_ == launched_, "the last step is finished");
        BucketPipeline::restart();
        launched_ = moved_ = 0;
    }

    void launch_before(std::size_t end) override {
        {
            const std::lock_guard lock(mutex_);
            if (launched_ == end) return;
            launched_ = end;
        }
        launched_more_.notify_one();
    }

    void finish() override {
        std::unique_lock lock(mutex_);
        step_waits_ = true;
        summed_more_.wait(lock, [&] { return failure_ || moved_ == launched_; });
        step_waits_ = false;
        if (failure_) std::rethrow_exception(failure_);
    }

  private:
    void run(const std::stop_token& stopped) {
        const auto has_work = [&] { return !failure_ && moved_ < launched_; };
        std::unique_lock lock(mutex_);
        while (launched_more_.wait(lock, stopped, has_work) && !stopped.stop_requested()) {
            lock.unlock();
            std::size_t summed = 0;
            std::exception_ptr failure;
            try {
                spin_until([&] {
                    summed = launched_;
                    arrive_before(summed);
                    return reduce(step_waits_ ? Wait::yes : Wait::no) || stopped.stop_requested();
                });
            } catch (...) {
                failure = std::current_exception();
            }
            lock.lock();
            moved_ = summed;
            failure_ = failure;
            summed_more_.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable_any launched_more_, summed_more_;
    std::atomic<std::size_t> launched_ = 0;  ///< written under the mutex
    std::atomic<bool> step_waits_ = false;   ///< written under the mutex
    std::size_t moved_ = 0;  ///< the pipeline is the thread's while this is less than launched_
    std::exception_ptr failure_;
    std::jthread thread_;  ///< last: ended before what it uses
};

std::unique_ptr<BucketPipeline> make_pipeline(Exchange& exchange,
                                              std::size_t buckets,
                                              const ProgressSettings& progress) {
    if (progress.mode == ProgressMode::thread)
        return std::make_unique<CommThread>(exchange, buckets, progress.cpu);
    return std::make_unique<BucketPipeline>(exchange, buckets);
}

std::vector<LeafPlace> places_of(LeafRange leaves, const TreePlan& plan) {
    std::vector<LeafPlace> places;
    std::vector<Partial> stack;
    for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
        const int height = static_cast<int>(stack.size());
        stack.push_back({leaf, 0, 0, height});
        places.push_back({.slot = height, .merges = {}});
        plan.merge(stack, [&](int into, int from) {
            places.back().merges.push_back({into, from});
        });
    }
    return places;
}

}  // namespace

ProgressMode progress_mode_for(int cpus, int compute_threads) {
    return cpus > compute_threads ? ProgressMode::thread : ProgressMode::in_line;
}

Reducer::Reducer(const FlatLayout& layout,
                 const TreePlan& plan,
                 int rank,
                 Exchange& exchange,
                 const ProgressSettings& progress)
    : layout_(layout),
      plan_(plan),
      exchange_(exchange),
      places_(places_of(leaves_of(rank, plan.ranks(), plan.virtual_ranks()), plan)),
      partials_(static_cast<int>(plan.partials_of_rank(rank).size())),
      waiting_for_(layout.bucket_count()),
      added_in_(layout.tensor_count()),
      complete_(layout.bucket_count()),
      pipeline_(make_pipeline(exchange, layout.bucket_count(), progress)) {}

Reducer::~Reducer() = default;

void Reducer::begin_step() {
    pipeline_->restart();
    rehearses_ = false;
    next_leaf_ = 0;
    next_launch_ = 0;
}

void Reducer::begin_rehearsal() {
    rehearses_ = true;
    next_leaf_ = 0;
}

void Reducer::await_all() {
    for (std::size_t b = 0; b < waiting_for_.size(); ++b) waiting_for_[b] = layout_.tensors_in(b);
    std::ranges::fill(added_in_, 0);
    std::fill(complete_.begin(), complete_.end(), false);
}

float* Reducer::begin_leaf(int micro_batches) {
    expect(!is_last_leaf(), "a leaf is left in this step");
    expect(micro_batches >= 1, "a leaf has a micro-batch");
    const LeafPlace& place = places_[next_leaf_++];
    micro_batches_ = micro_batches;
    micro_batch_ = 1;
    merges_ = place.merges;
    await_all();
    float* const slot = exchange_.slot(place.slot);
    exchange_.memory().clear(slot, layout_.size());
    return slot;
}

void Reducer::next_micro_batch() {
    expect(micro_batch_ < micro_batches_, "a micro-batch is left in this leaf");
    ++micro_batch_;
}

void Reducer::add(std::size_t tensor) {
    expect(added_in_[tensor] != micro_batch_, "a tensor is added once in a micro-batch");
    added_in_[tensor] = micro_batch_;
    if (micro_batch_ < micro_batches_) return;
    const std::size_t bucket = layout_.bucket_of(tensor);
    if (--waiting_for_[bucket] == 0) complete_bucket(bucket);
}

void Reducer::end_leaf() {
    expect(micro_batch_ == micro_batches_, "every micro-batch of the leaf has run");
    complete_all();
}

void Reducer::begin_together() {
    expect(next_leaf_ == 0, "no leaf of this step was computed by itself");
    next_leaf_ = places_.size();
    micro_batches_ = micro_batch_ = 1;
    merges_ = {};
    await_all();
}

void Reducer::complete_all() {
    for (std::size_t b = 0; b < complete_.size(); ++b)
        if (!complete_[b]) complete_bucket(b);
}

void Reducer::finish() {
    expect(next_launch_ == layout_.bucket_count(), "all leaves are ended");
    const double begin_s = now_s();
    pipeline_->finish();
    exposed_s_ += now_s() - begin_s;
}

const float* Reducer::reduced(std::size_t bucket) const {
    return pipeline_->sum(bucket);
}

double Reducer::take_launch_s() {
    return pipeline_->take_launch_s();
}

OverlapTimes Reducer::take_overlap() {
    return {.busy_s = pipeline_->take_busy_s(), .exposed_s = std::exchange(exposed_s_, 0.0)};
}

std::vector<std::size_t> Reducer::missing() const {
    std::vector<std::size_t> missing;
    for (std::size_t tensor = 0; tensor < added_in_.size(); ++tensor)
        if (added_in_[tensor] == 0) missing.push_back(tensor);
    return missing;
}

void Reducer::complete_bucket(std::size_t bucket) {
    const FloatRange range = layout_.bucket(bucket);
    for (const LeafPlace::Merge& merge : merges_)
        exchange_.memory().add(exchange_.slot(merge.into) + range.begin,
                               exchange_.slot(merge.from) + range.begin,
                               range.size());
    complete_[bucket] = true;
    if (is_last_leaf() && !rehearses_) launch_ready();
}

void Reducer::launch_ready() {
    while (next_launch_ < complete_.size() && complete_[next_launch_]) ++next_launch_;
    pipeline_->launch_before(next_launch_);
}

}  // namespace lockstep
