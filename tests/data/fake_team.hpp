// SPDX-License-Identifier: Apache-2.0
// A team of threads, for code that cannot tell who carries its messages.
#pragma once

#include "lockstep/data/team.hpp"

#include "support/caught.hpp"

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::test {

/// A blackboard that all members write on and then read.
class FakeGather {
  public:
    explicit FakeGather(int size) : size_(size), next_(static_cast<std::size_t>(size)) {}

    std::vector<std::string> operator()(int rank, const std::string& bytes) {
        std::unique_lock lock(mutex_);
        next_[static_cast<std::size_t>(rank)] = bytes;
        const std::uint64_t round = round_;
        if (++arrived_ == size_) {
            done_ = next_;
            arrived_ = 0;
            ++round_;
            changed_.notify_all();
        }
        changed_.wait(lock, [&] { return round_ > round; });
        return done_;
    }

  private:
    int size_, arrived_ = 0;
    std::uint64_t round_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> next_, done_;
};

/// Runs `member` once for each rank of a team of `size`; the exception of each, if any, by rank.
inline std::vector<std::exception_ptr> run_team(int size,
                                                const std::function<void(const Team&)>& member) {
    FakeGather gather(size);
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank] {
            const Team team{rank, size, [&gather, rank](const std::string& bytes) {
                                return gather(rank, bytes);
                            }};
            try {
                member(team);
            } catch (...) {
                failures[static_cast<std::size_t>(rank)] = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return failures;
}

/// The code of what each member of a team threw, or "".
inline std::vector<std::string> codes_of(const std::vector<std::exception_ptr>& failures) {
    std::vector<std::string> codes;
    for (const std::exception_ptr& failure : failures)
        codes.push_back(caught_code([&] {
            if (failure) std::rethrow_exception(failure);
        }));
    return codes;
}

}  // namespace lockstep::test
