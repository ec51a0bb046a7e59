// SPDX-License-Identifier: Apache-2.0
// Where every rank is, readable by rank 0 even when a rank no longer answers messages.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <array>
#include <string>

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

}  // namespace lockstep::test
