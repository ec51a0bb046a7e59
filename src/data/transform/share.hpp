// SPDX-License-Identifier: Apache-2.0
// Divides a loop over rows or values into near-equal parts for threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace lockstep {

/// Calls work(begin, end) for parts that cover [0, count) once, on `threads` threads; the caller's
/// is one of them. Throws the exception of the first failing part, after all have ended.
template <class Work>
void share_out(std::size_t count, int threads, Work&& work) {
    const std::size_t parts =
        std::clamp<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), 1, count | 1);
    std::vector<std::exception_ptr> failures(parts);
    const auto run = [&](std::size_t part) {
        try {
            work(count * part / parts, count * (part + 1) / parts);
        } catch (...) {
            failures[part] = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> others;
        for (std::size_t part = 1; part < parts; ++part) others.emplace_back(run, part);
        run(0);
    }
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep
