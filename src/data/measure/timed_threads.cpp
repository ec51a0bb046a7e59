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

namespace lockstep {

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
    for (int i = 0; i < threads; ++i) running.emplace_back(run, i);
    running.clear();
    if (error) std::rethrow_exception(error);
    return end_s - begin_s;
}

}  // namespace lockstep
