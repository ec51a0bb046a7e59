// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ledger: a record of the samples that a run's model was trained on, written step by step and
/// checked across restarts.
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
    std::uint64_t samples = 0;  ///< samples of an epoch
    std::string data_digest;    ///< digest of the data set, 32 hexadecimal digits
    int rank = 0, ranks = 1;
    std::uint64_t incarnation = 1;
    StreamPosition
        start;  ///< the first step of this incarnation; it supersedes earlier records of it
    /// Samples that are not in an epoch: those at its end that do not fill a step, and test data.
    std::uint32_t dropped = 0;
    bool operator==(const LedgerHead&) const = default;
};

/// Returns FOLDER/rank-00003.2.ledger for rank 3 of incarnation 2.
fs::path ledger_path(const fs::path& folder, const LedgerHead& head);

/// Appends one record for each step to a file of this rank's own. One thread. Move-only.
class LedgerWriter {
  public:
    /// Creates the folder and the file, which must not exist yet, and writes its head at once.
    /// Errors: E401, E402, E405.
    LedgerWriter(const fs::path& folder, const LedgerHead& head);

    /// Adds each step's batch, even if it has no rows of this rank. Writes from time to time.
    /// Errors: E402, E405.
    void add(const Batch& batch);

    /// Writes all records to disk: write(), then sync(). Errors: E402, E405.
    void flush();

    /// Hands all records to the system. Call it when a checkpoint is ordered. Errors: E402, E405.
    void write();

    /// Makes durable what write() handed over. Call it before the checkpoint is committed; any
    /// thread. Errors: E402, E405.
    void sync() const;

  private:
    fs::path path_;
    UniqueFd file_;
    std::vector<std::byte> pending_;
    std::uint64_t chain_ = 0;  // hash of the previous record
};

/// The samples of one epoch, over the steps of the final model.
struct LedgerEpoch {
    std::uint64_t epoch = 0;
    std::uint64_t steps = 0;       ///< steps recorded by all ranks
    std::uint64_t seen = 0;        ///< number of different samples
    std::uint64_t duplicate = 0;   ///< surplus rows: a sample seen three times counts two
    std::uint64_t missing = 0;     ///< samples that should have been seen and were not
    std::uint64_t superseded = 0;  ///< rows of steps that a later incarnation repeated
    std::uint64_t masked = 0;      ///< rows seen with zero bytes (bad data)
    bool is_open = false;          ///< the last epoch, unfinished; missing samples are no fault
    std::vector<std::string> findings;  ///< faults, one sentence each; at most a dozen

    /// Returns true if each sample was trained on exactly once.
    bool is_exact() const { return duplicate == 0 && missing == 0 && findings.empty(); }
};

/// The result of check_ledger().
struct LedgerReport {
    std::uint64_t samples = 0;
    std::uint64_t dropped = 0;  ///< of these, the samples left out of each epoch by intention
    std::uint64_t incarnations = 0, files = 0;
    std::vector<LedgerEpoch> epochs;    ///< ascending, from the first recorded one
    std::vector<std::string> notes;     ///< harmless: files that end within a record
    std::vector<std::string> findings;  ///< faults of files: damaged, missing, of another data set

    /// Returns true if each sample of each finished epoch, except dropped ones, was seen once.
    bool is_exact() const;
};

/// Reads all ledger files of `folder`. A step counts for the latest incarnation that began at or
/// before it, because the final model went through that one. A file that ends within a record is
/// torn, as a killed rank leaves it; its other records count. Errors: E201, E228 (no ledger; no
/// file can be read).
LedgerReport check_ledger(const fs::path& folder);

/// Returns a table by epoch, notes and findings, and the verdict, for people.
std::string describe_ledger(const LedgerReport& report);

}  // namespace lockstep
