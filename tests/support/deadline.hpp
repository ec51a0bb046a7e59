// SPDX-License-Identifier: Apache-2.0
// Where every rank is, readable by rank 0 even when a rank no longer answers messages; and what
// ends a test program that hangs, and says which ranks hang in which test.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <array>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::test {

/// One rank's entry. Text is written whole by its owner; a torn read only garbles a diagnosis.
struct Progress {
    std::array<char, 160> test;  ///< "Suite.Name", or what surrounds the tests
    std::array<char, 64> call;   ///< what it waits for others in ("MPI_Barrier"), or ""
};

/// A file of all ranks' entries, mapped by all and unlinked at once, so that nothing stays behind.
class ProgressBoard {
  public:
    /// Collective.
    explicit ProgressBoard(const Communicator& ranks);
    ~ProgressBoard();
    ProgressBoard(const ProgressBoard&) = delete;
    ProgressBoard& operator=(const ProgressBoard&) = delete;

    Progress& mine() { return entries_[rank_]; }
    void enter(const std::string& test);

    /// Who is stuck, in one line for each place; ranks that only wait inside MPI come after.
    std::string verdict() const;

  private:
    int rank_, size_;
    Progress* entries_;
};

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
