// SPDX-License-Identifier: Apache-2.0
// Ends a test program that hangs, and says which ranks hang in which test.
#pragma once

#include "support/progress_board.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep::test {

/// Exit code of a test program that ran past its deadline.
inline constexpr int deadline_exit_code = 124;

/// Watches for `seconds` from construction. Then every rank's watchdog asks its main thread (the
/// one that made it) where it is, and rank 0's prints the verdict and aborts all ranks.
class Deadline {
  public:
    Deadline(double seconds, const Communicator& ranks, ProgressBoard& board);
    ~Deadline();
    Deadline(const Deadline&) = delete;
    Deadline& operator=(const Deadline&) = delete;

  private:
    void watch(double seconds);
    void give_up();

    const Communicator& ranks_;
    ProgressBoard& board_;
    pthread_t main_thread_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::thread watchdog_;
};

}  // namespace lockstep::test
