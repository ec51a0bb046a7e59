// SPDX-License-Identifier: Apache-2.0
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
//
// Tested: comm/road/progress_test.cpp (both movers, order, failures, ending in mid-step),
// comm/road/overlap_test.cpp (a slow link hides behind backward).
#include "road/bucket_pipeline.hpp"

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

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

namespace lockstep {
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
            const Outcome outcome = move_buckets(stopped);
            lock.lock();
            moved_ = outcome.summed;
            failure_ = outcome.failure;
            summed_more_.notify_one();
        }
    }

    struct Outcome {
        std::size_t summed = 0;
        std::exception_ptr failure;
    };

    Outcome move_buckets(const std::stop_token& stopped) {
        Outcome outcome;
        try {
            spin_until([&] {
                outcome.summed = launched_;
                arrive_before(outcome.summed);
                return reduce(step_waits_ ? Wait::yes : Wait::no) || stopped.stop_requested();
            });
        } catch (...) {
            outcome.failure = std::current_exception();
        }
        return outcome;
    }

    std::mutex mutex_;
    std::condition_variable_any launched_more_, summed_more_;
    std::atomic<std::size_t> launched_ = 0;  ///< written under the mutex
    std::atomic<bool> step_waits_ = false;   ///< written under the mutex
    std::size_t moved_ = 0;  ///< the pipeline is the thread's while this is less than launched_
    std::exception_ptr failure_;
    std::jthread thread_;  ///< last: ended before what it uses
};

}  // namespace

void BucketPipeline::restart() {
    expect(is_idle(), "the last step is finished");
    arrived_ = summed_ = 0;
    std::ranges::fill(sums_, nullptr);
}

void BucketPipeline::launch_before(std::size_t end) {
    if (arrived_ == end && is_idle()) return;
    const double begin_s = now_s();
    arrive_before(end);
    reduce(Wait::no);
    launch_s_ += now_s() - begin_s;
}

void BucketPipeline::arrive_before(std::size_t end) {
    if (arrived_ < end && is_idle()) busy_since_s_ = now_s();
    while (arrived_ < end) exchange_.arrive(arrived_++);
}

bool BucketPipeline::reduce(Wait wait) {
    if (is_idle()) return true;
    while (!is_idle()) {
        const float* sum = exchange_.reduce(summed_, wait);
        if (sum == nullptr) return false;
        sums_[summed_++] = sum;
    }
    busy_s_ += now_s() - busy_since_s_;
    return true;
}

ProgressMode progress_mode_for(int cpus, int compute_threads) {
    return cpus > compute_threads ? ProgressMode::thread : ProgressMode::in_line;
}

std::unique_ptr<BucketPipeline> make_pipeline(Exchange& exchange,
                                              std::size_t buckets,
                                              const ProgressSettings& progress) {
    if (progress.mode == ProgressMode::thread)
        return std::make_unique<CommThread>(exchange, buckets, progress.cpu);
    return std::make_unique<BucketPipeline>(exchange, buckets);
}

}  // namespace lockstep
