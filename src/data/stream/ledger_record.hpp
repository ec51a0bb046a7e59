// SPDX-License-Identifier: Apache-2.0
// The bytes of a ledger file: a head, then a record for each step.
#pragma once

#include "lockstep/data/ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// The state of the bytes at a file's end.
struct LedgerEnd {
    FoundRecord::State state = FoundRecord::State::whole;
    std::uint64_t offset = 0;  ///< place of the torn or damaged bytes
    std::uint64_t bytes = 0;   ///< from there to the end of the file
};

/// The head of the file at `path`; nothing if it has none. Errors: E201, E202, E402.
std::optional<LedgerHead> read_ledger_head(const fs::path& path);

/// Calls `visit` with every whole record, up to the first that is not. The file has a head.
/// However large it is, a piece of it is in memory. Errors: E201, E202, E206, E402.
LedgerEnd visit_records(const fs::path& path, const std::function<void(const FoundRecord&)>& visit);

}  // namespace lockstep
