// SPDX-License-Identifier: Apache-2.0
/// @file
/// All rows of a data set in memory, where batches are gathered without any reading.
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

/// Which part of the rows a process loads, and how.
struct LoadOptions {
    int part = 0;                         ///< which one of `parts`
    int parts = 1;                        ///< of near-equal bytes; all together are everything
    int threads = 1;                      ///< that read and decode
    BadData on_bad_data = BadData::fail;  ///< what becomes of blocks that cannot be read
    /// Called with decoded bytes of this part, by one thread at a time.
    std::function<void(std::uint64_t done, std::uint64_t total)> report;
};

/// Every row of every field, decoded, as stored: field after field, in memory that the caller lends
/// and that several processes may share. Each process makes one of its own over the same bytes.
///
///     ResidentRows rows(index, window, keep);     // all ranks of a node
///     rows.load({.part = rank, .parts = ranks});  // each its part
///     ... a barrier of these ranks ...
///     rows.seal();                                // all of them
class ResidentRows {
  public:
    /// Bytes of memory to lend: rows, and what became of each block.
    static std::uint64_t bytes_needed(const DatasetIndex& index);

    /// Bytes of buffers that `threads` need while they load. Blocks are expanded whole, however few
    /// rows are in them.
    static std::uint64_t loading_bytes(const DatasetIndex& index, int threads);

    /// `memory` has at least bytes_needed() bytes, begins at a multiple of 64 and lives as long as
    /// `keep` does; what it holds does not matter. Huge pages are asked for.
    /// Errors: E227 (more than 2^32 samples).
    ResidentRows(std::shared_ptr<const DatasetIndex> index,
                 std::span<std::byte> memory,
                 std::shared_ptr<void> keep = {});

    /// Over private memory of this process; to be loaded and sealed. Errors: E106 (no memory).
    static std::shared_ptr<ResidentRows> in_own_memory(std::shared_ptr<const DatasetIndex> index);

    /// Reads, checks and decodes one part. A block that cannot be had throws (E213, E204, E210), or
    /// has its samples masked, by `on_bad_data`; other errors of files throw in either case.
    StreamStats load(const LoadOptions& options);

    /// After all parts are loaded and this process can see them: finds the masked samples. A bug
    /// (E700) if a part is missing.
    void seal();

    const DatasetIndex& index() const { return *index_; }  ///< of what is kept
    bool is_sealed() const { return is_sealed_; }  ///< all parts are there: streams may read

    /// All rows of a field, end to end.
    std::span<const std::byte> rows(std::size_t field) const { return fields_[field]; }

    /// Samples with a bad block in some field. Once sealed.
    std::uint64_t masked_samples() const { return masked_samples_; }

    /// Whether `sample` is one of them: its slot stays in a batch, its bytes count for nothing.
    bool is_masked(std::uint64_t sample) const {
        return masked_samples_ > 0 && is_masked_[sample] != 0;
    }

  private:
    std::shared_ptr<const DatasetIndex> index_;
    std::shared_ptr<void> keep_;
    std::vector<std::span<std::byte>> fields_;
    std::vector<std::span<std::uint32_t>> states_;  // of blocks, by field; in the lent memory
    std::vector<std::uint8_t> is_masked_;           // by sample; empty if none is
    std::uint64_t masked_samples_ = 0;
    bool is_sealed_ = false;
};

/// The source of a run's batches.
enum class DataMode {
    resident,  ///< gathered from memory that the ranks of a node share
    stream,    ///< read ahead from files, epoch after epoch
};
std::string_view data_mode_name(DataMode mode);  ///< as `--data-mode` spells it

/// What the choice rests on. Of a node, all of its ranks together.
struct MemoryFacts {
    std::uint64_t bytes_needed = 0;   ///< ResidentRows::bytes_needed()
    std::uint64_t loading_bytes = 0;  ///< ResidentRows::loading_bytes() of all ranks
    std::uint64_t samples = 0;
    std::uint64_t budget_bytes = 0;  ///< what the user allows for data
    std::uint64_t free_bytes = 0;    ///< memory that the node or control group has left
    std::uint64_t shared_bytes = 0;  ///< room for shared memory; free_bytes for a single rank
};

/// How data will be kept, and why.
struct ModeChoice {
    DataMode mode = DataMode::stream;
    std::string why;  ///< one sentence with the numbers that decided
};

/// Resident if everything fits into the budget, into nine tenths of the free memory, and into
/// the room for shared memory; else stream.
ModeChoice choose_mode(const MemoryFacts& facts);

/// For a user who asks for it. Errors: E227 saying what it does not fit into.
void check_resident(const MemoryFacts& facts);

}  // namespace lockstep
