// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which samples a run's model was trained on: written step by step, checked across restarts.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/batch_stream.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The writer of a ledger file, and its first step.
struct LedgerHead {
    std::uint64_t samples = 0;  ///< of an epoch
    std::string data_digest;    ///< of the data set, 32 hexadecimal digits
    int rank = 0, ranks = 1;
    std::uint64_t incarnation = 1;
    StreamPosition
        start;  ///< what this incarnation does first; it supersedes what others did there
    /// Samples that an epoch has not: those at its end that do not fill a step, and test data.
    std::uint32_t dropped = 0;
    bool operator==(const LedgerHead&) const = default;
};

/// FOLDER/rank-00003.2.ledger for rank 3 of incarnation 2.
std::filesystem::path ledger_path(const std::filesystem::path& folder, const LedgerHead& head);

/// Appends one record for each step to a file of this rank's own. One thread. Move-only.
class LedgerWriter {
  public:
    /// Makes the folder and the file, which must not be there yet, and writes its head at once.
    /// Errors: E401, E402, E405.
    LedgerWriter(const std::filesystem::path& folder, const LedgerHead& head);

    /// Each step's batch, also those without rows of this rank. Writes now and then.
    /// Errors: E402, E405.
    void add(const Batch& batch);

    /// All records so far are on disk when this returns: to be called before a checkpoint is
    /// committed, and at the end. Errors: E402, E405.
    void flush();

  private:
    void write_pending();

    std::filesystem::path path_;
    UniqueFd file_;
    std::vector<std::byte> pending_;
    std::uint64_t chain_ = 0;  // hash of the record before
};

/// What became of one epoch, over the steps that the last model went through.
struct LedgerEpoch {
    std::uint64_t epoch = 0;
    std::uint64_t steps = 0;       ///< recorded by all ranks
    std::uint64_t seen = 0;        ///< different samples
    std::uint64_t duplicate = 0;   ///< rows too many: a sample seen three times counts two
    std::uint64_t missing = 0;     ///< samples that should have been seen and were not
    std::uint64_t superseded = 0;  ///< rows of steps that a later incarnation did again
    std::uint64_t masked = 0;      ///< rows that were seen without their bytes (bad data)
    bool is_open = false;          ///< the last epoch, as far as it got; nothing may be missing
    std::vector<std::string> findings;  ///< what is wrong, a sentence each; at most a dozen

    /// Each sample was trained on exactly once.
    bool is_exact() const { return duplicate == 0 && missing == 0 && findings.empty(); }
};

/// What check_ledger() found.
struct LedgerReport {
    std::uint64_t samples = 0;
    std::uint64_t dropped = 0;  ///< of them, not trained on in each epoch, by intention
    std::uint64_t incarnations = 0, files = 0;
    std::vector<LedgerEpoch> epochs;    ///< ascending; from the first that was recorded
    std::vector<std::string> notes;     ///< harmless: files that end within a record
    std::vector<std::string> findings;  ///< of files: damaged, missing, of another data set

    /// Every sample of every finished epoch, but for those dropped, was seen exactly once.
    bool is_exact() const;
};

/// Reads all ledger files of `folder`. A step counts for the latest incarnation that began at or
/// before it: that is what the final model went through. A file that ends within a record is torn,
/// as a killed rank leaves it: the rest counts. Errors: E201, E228 (no ledger; no file can be
/// read).
LedgerReport check_ledger(const std::filesystem::path& folder);

/// A table by epoch, notes and findings, and the verdict, for people.
std::string describe_ledger(const LedgerReport& report);

}  // namespace lockstep
