// SPDX-License-Identifier: Apache-2.0
#include "timed_threads.hpp"

#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <exception>
#include <latch>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include <sched.h>

namespace lockstep {
namespace {

// This thread, and those that it starts, stay on processor number `number` of the process, as a
// rank that is bound to a core does.
void keep_to_processor(int number) {
    cpu_set_t allowed, kept;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    number %= CPU_COUNT(&allowed);
    CPU_ZERO(&kept);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&kept) == 0; ++cpu)
        if (CPU_ISSET(cpu, &allowed) && number-- == 0) CPU_SET(cpu, &kept);
    ::sched_setaffinity(0, sizeof kept, &kept);
}

}  // namespace

double timed_threads(int threads, const std::function<std::function<void()>(int)>& prepare) {
    std::latch ready(threads);
    std::mutex mutex;
    std::exception_ptr error;
    double begin_s = std::numeric_limits<double>::infinity(), end_s = 0;
    const auto guarded = [&](const auto& action) {
        try {
            action();
        } catch (...) {
            const std::scoped_lock lock(mutex);
            if (!error) error = std::current_exception();
        }
    };
    const auto run = [&](int thread) {
        keep_to_processor(thread);
        std::function<void()> work = [] {};
        guarded([&] { work = prepare(thread); });
        ready.arrive_and_wait();
        const double began = now_s();
        guarded(work);
        const std::scoped_lock lock(mutex);
        begin_s = std::min(begin_s, began);
        end_s = std::max(end_s, now_s());
    };
    std::vector<std::jthread> running;
    // Those that run wait for all: what cannot be started is counted as there.
    int started = 0;
    guarded([&] {
        for (; started < threads; ++started) running.emplace_back(run, started);
    });
    ready.count_down(threads - started);
    running.clear();
    if (error) std::rethrow_exception(error);
    return end_s - begin_s;
}

}  // namespace lockstep
