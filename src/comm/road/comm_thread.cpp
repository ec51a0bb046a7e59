// SPDX-License-Identifier: Apache-2.0
// A thread that moves buckets while the step's thread computes: on a core of its own, backward
// never stops to communicate.
//
//     step's thread    launch_before(2)    launch_before(5)    finish() ........ all summed
//                           |                    |                |                 ^
//     this thread      wakes, polls 0 1 ... joins 2 3 4 ...   may block now         | notifies
//
// What must never happen:
// - Two threads are in MPI at once: it may allow one at a time only. Between the first launch and
//   the end of finish() the exchange belongs to this thread; `launched_` and `moved_` say whose it
//   is.
// - finish() waits for a thread that has failed: the failure ends the wait, and is thrown there.
// - The thread blocks in a sum while the step may still fail: the destructor would wait for other
//   ranks. So it polls until finish() has been called.
//
// Tested: comm/road/progress_test.cpp.

#include "lockstep/core/error.hpp"

#include "base/spin.hpp"
#include "road/bucket_pipeline.hpp"

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

std::unique_ptr<BucketPipeline> make_comm_thread(Exchange& exchange,
                                                 std::size_t buckets,
                                                 std::optional<int> cpu) {
    return std::make_unique<CommThread>(exchange, buckets, cpu);
}

}  // namespace lockstep
