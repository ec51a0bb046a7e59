// SPDX-License-Identifier: Apache-2.0
// Counts the samples of one epoch, step by step.
#pragma once

#include "lockstep/data/ledger.hpp"

#include "ledger_record.hpp"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Takes records of kept steps in any order, then computes the account.
class EpochAccount {
  public:
    /// `samples` are those of the epoch; the first `trained` in its order are trained on.
    EpochAccount(std::uint64_t samples, std::uint64_t trained);

    /// Adds the part of one of `ranks` ranks in a step.
    void add(const StepFacts& step, int ranks, std::span<const std::uint64_t> ids);
    void add_superseded(std::uint64_t rows) { superseded_ += rows; }

    /// Returns true if there is a step that all ranks recorded.
    bool has_whole_step() const;

    /// Computes the account. Positions below `due` must have been recorded: all of them in an epoch
    /// that others follow, those before the last restart in the last one. After that the run may
    /// have ended anywhere, with steps that only some ranks had written.
    LedgerEpoch close(std::uint64_t epoch, std::uint64_t due) const;

  private:
    struct StepRows {
        std::uint64_t samples = 0, rows = 0;
        int ranks = 0, recorded_by = 0;
        bool is_whole() const { return recorded_by >= ranks; }
    };
    using Steps = std::map<std::uint64_t, StepRows>;  // by position

    /// Returns the end of the last step that is whole or due.
    Steps::const_iterator end_of_account(std::uint64_t due) const;

    /// Returns the rows that are lacking, and whether the epoch's end was reached, in `result`.
    std::uint64_t check_steps(std::uint64_t due, LedgerEpoch& result) const;
    void name_samples(LedgerEpoch& result) const;

    std::uint64_t samples_, trained_;
    // The kernel provides its pages as they are written: a head that claims many samples costs
    // nothing.
    std::unique_ptr<std::uint64_t[], decltype(&std::free)> seen_bits_;
    std::vector<std::uint64_t> duplicates_;  // the first few
    Steps steps_;
    std::uint64_t seen_ = 0, duplicate_ = 0, superseded_ = 0, masked_ = 0, foreign_ = 0;
};

}  // namespace lockstep
