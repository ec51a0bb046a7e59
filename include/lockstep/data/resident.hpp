// SPDX-License-Identifier: Apache-2.0
/// @file
/// All rows of a data set in memory: batches are gathered without reading files.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The part of the rows that a process loads, and its settings.
struct LoadOptions {
    int part = 0;     ///< number of the part among `parts`
    int parts = 1;    ///< number of parts of near-equal bytes; together they are all rows
    int threads = 1;  ///< threads that read and decode
    BadData on_bad_data = BadData::fail;  ///< treatment of blocks that cannot be read
    /// Called with decoded bytes of this part, by one thread at a time.
    std::function<void(std::uint64_t done, std::uint64_t total)> report;
};

/// Every row of every field, decoded, as stored: field after field, in memory that the caller lends
/// and that several processes may share. Each process makes its own object over the same bytes.
///
///     ResidentRows rows(index, window, keep);     // all ranks of a node
///     rows.load({.part = rank, .parts = ranks});  // each its part
///     ... a barrier of these ranks ...
///     rows.seal();                                // all of them
class ResidentRows {
  public:
    /// Returns the bytes of memory to lend: for rows, and for the state of each block.
    static std::uint64_t bytes_needed(const DatasetIndex& index);

    /// Returns the bytes of buffers that `threads` need while they load. A block is expanded whole,
    /// even if few of its rows are needed.
    static std::uint64_t loading_bytes(const DatasetIndex& index, int threads);

    /// `memory` has at least bytes_needed() bytes, begins at a multiple of 64 and lives as long as
    /// `keep` does; its content does not matter. Huge pages are requested. Errors: E227 (more than
    /// 2^32 samples).
    ResidentRows(std::shared_ptr<const DatasetIndex> index,
                 std::span<std::byte> memory,
                 std::shared_ptr<void> keep = {});

    /// Makes rows in private memory of this process; they must be loaded and sealed. Errors: E106
    /// (no memory).
    static std::shared_ptr<ResidentRows> in_own_memory(std::shared_ptr<const DatasetIndex> index);

    /// Reads, checks and decodes one part. A block that cannot be decoded throws (E213, E204,
    /// E210), or has its samples masked, by `on_bad_data`; other errors of files throw in either
    /// case.
    StreamStats load(const LoadOptions& options);

    /// Finds the masked samples. Call it after all parts are loaded and visible to this process. A
    /// missing part is a bug (E700).
    void seal();

    const DatasetIndex& index() const { return *index_; }  ///< index of the rows
    bool is_sealed() const { return is_sealed_; }  ///< all parts are loaded: streams may read

    /// Returns all rows of a field, end to end.
    std::span<const std::byte> rows(std::size_t field) const { return fields_[field]; }

    /// Returns the number of samples with a bad block in some field. Only when sealed.
    std::uint64_t masked_samples() const { return masked_samples_; }

    /// Returns true if `sample` is one of them: its slot stays, its bytes do not count.
    bool is_masked(std::uint64_t sample) const {
        return masked_samples_ > 0 && is_masked_[sample] != 0;
    }

  private:
    std::shared_ptr<const DatasetIndex> index_;
    std::shared_ptr<void> keep_;
    std::vector<std::span<std::byte>> fields_;
    std::vector<std::span<std::uint32_t>>
        states_;                           // states of blocks, by field; in the lent memory
    std::vector<std::uint8_t> is_masked_;  // by sample; empty if none is masked
    std::uint64_t masked_samples_ = 0;
    bool is_sealed_ = false;
};

/// The source of a run's batches.
enum class DataMode {
    resident,  ///< gathered from memory that the ranks of a node share
    stream,    ///< read ahead from files, epoch after epoch
};
std::string_view data_mode_name(DataMode mode);  ///< name for `--data-mode`

/// The memory of a node, all of its ranks together, for the choice of the mode.
struct MemoryFacts {
    std::uint64_t bytes_needed = 0;   ///< ResidentRows::bytes_needed()
    std::uint64_t loading_bytes = 0;  ///< ResidentRows::loading_bytes() of all ranks
    std::uint64_t samples = 0;
    std::uint64_t budget_bytes = 0;  ///< memory that the user allows for data
    std::uint64_t free_bytes = 0;    ///< free memory of the node or control group
    std::uint64_t shared_bytes = 0;  ///< room for shared memory; free_bytes for a single rank
};

/// The chosen mode, and the reason.
struct ModeChoice {
    DataMode mode = DataMode::stream;
    std::string why;  ///< one sentence with the numbers that decided
};

/// Returns resident if everything fits into the budget, into nine tenths of the free memory, and
/// into the room for shared memory; else stream.
ModeChoice choose_mode(const MemoryFacts& facts);

/// Checks the memory for a user who requests resident data. Errors: E227 naming the limit that is
/// too small.
void check_resident(const MemoryFacts& facts);

}  // namespace lockstep
