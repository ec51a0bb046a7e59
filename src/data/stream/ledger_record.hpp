// SPDX-License-Identifier: Apache-2.0
// The bytes of a ledger file: a head, then a record for each step.
#pragma once

#include "lockstep/data/ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// The facts of one step in a record, besides the samples of its rank.
struct StepFacts {
    StreamPosition position;
    std::uint64_t samples = 0;  ///< over all ranks
    std::uint64_t masked = 0;   ///< masked samples of this rank
    bool operator==(const StepFacts&) const = default;
};

/// Numbers are little-endian. A head is 96 bytes: "LSLEDGER", version, rank, ranks, dropped
/// (u32), incarnation, samples, start epoch, start consumed (u64), digest (32 characters),
/// XXH3-64 of what is before it.
inline constexpr std::size_t ledger_head_bytes = 96;
std::vector<std::byte> encode_head(const LedgerHead& head);

/// Returns nothing for bytes that are not a head.
std::optional<LedgerHead> decode_head(std::span<const std::byte> bytes);

/// A record's frame: length of its body (u32), the length once more with all bits turned (u32),
/// the body, and XXH3-64 of the hash before it (of the head for the first) and the body.
inline constexpr std::size_t frame_bytes = 16;

/// The body, in LEB128: epoch, consumed, samples in step, masked, ids, kind; then the ids as
/// differences (zigzag) each from the one before, kind 0, or, kind 1, as runs: difference of its
/// first from the last one before, length.
void append_record(std::vector<std::byte>& to,
                   const StepFacts& step,
                   std::span<const std::uint64_t> ids,
                   std::uint64_t& chain);

/// Puts the frame around a body.
void append_body(std::vector<std::byte>& to, std::span<const std::byte> body, std::uint64_t& chain);

/// A record at the begin of some bytes.
struct FoundRecord {
    enum class State {
        whole,
        torn,     ///< the bytes end within the record, or are only zeros
        damaged,  ///< no record, although more bytes follow
    } state = State::torn;
    std::size_t bytes = 0;  ///< size of the whole record
    StepFacts step;
    std::vector<std::uint64_t> ids;
};

/// Reads the record at the begin of `bytes`, the rest of a file. `chain` becomes its hash.
FoundRecord read_record(std::span<const std::byte> bytes, std::uint64_t& chain);

/// Takes records of kept steps in any order, then says what they come to.
class EpochAccount {
  public:
    /// Of `samples`, the first `trained` in the epoch's order are trained on.
    EpochAccount(std::uint64_t samples, std::uint64_t trained);

    /// The part of one of `ranks` ranks in a step.
    void add(const StepFacts& step, int ranks, std::span<const std::uint64_t> ids);
    void add_superseded(std::uint64_t rows) { superseded_ += rows; }

    /// Whether there is a step that all ranks recorded.
    bool has_whole_step() const;

    /// Positions below `due` must have been recorded: all of them in an epoch that others follow,
    /// those before the last restart in the last one. After that the run may have ended anywhere,
    /// with steps that only some ranks had written.
    LedgerEpoch close(std::uint64_t epoch, std::uint64_t due) const;

  private:
    struct StepRows {
        std::uint64_t samples = 0, rows = 0;
        int ranks = 0, recorded_by = 0;
        bool is_whole() const { return recorded_by >= ranks; }
    };
    using Steps = std::map<std::uint64_t, StepRows>;  // by position

    /// After the last step that is whole or due.
    Steps::const_iterator end_of_account(std::uint64_t due) const;

    /// Returns the rows that are lacking, and whether the epoch's end was reached, in `result`.
    std::uint64_t check_steps(std::uint64_t due, LedgerEpoch& result) const;
    void name_samples(LedgerEpoch& result) const;

    std::uint64_t samples_, trained_;
    // The kernel gives its pages as they are written: a head that claims many samples costs
    // nothing.
    std::unique_ptr<std::uint64_t[], decltype(&std::free)> seen_bits_;
    std::vector<std::uint64_t> duplicates_;  // the first few
    Steps steps_;
    std::uint64_t seen_ = 0, duplicate_ = 0, superseded_ = 0, masked_ = 0, foreign_ = 0;
};

}  // namespace lockstep
