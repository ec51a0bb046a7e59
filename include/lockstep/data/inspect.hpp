// SPDX-License-Identifier: Apache-2.0
/// @file
/// A data set described for people and programs: what it holds, how it lies, whether a job fits it.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// How a field lies in its files.
struct FieldLayout {
    std::string field;
    bool is_chunked = false;
    bool is_cut = false;  ///< chunks hold parts of samples
    std::uint64_t blocks = 0;
    std::uint64_t block_bytes = 0;  ///< of a whole block, decoded
    std::uint64_t raw_bytes = 0, stored_bytes = 0;

    double ratio() const {  ///< decoded bytes to stored ones
        return static_cast<double>(raw_bytes) /
               static_cast<double>(stored_bytes > 0 ? stored_bytes : 1);
    }
};

/// How well the classes of a label field are mixed within blocks.
struct LabelMix {
    std::string field;
    double whole_bits = 0;  ///< entropy of the classes of all samples
    double block_bits = 0;  ///< mean entropy within the blocks looked at
    std::uint64_t blocks = 0;

    /// 1: a block has the classes of the whole; 0: a block has one class.
    double mixing() const { return whole_bits > 0 ? block_bits / whole_bits : 1; }
};

/// A job that would stream the data set.
struct JobShape {
    int ranks = 1, nodes = 1;
    std::int64_t batch = 128;
    int lanes = 64, window_blocks = 5;
    std::uint64_t node_memory_bytes = 0;  ///< of a node; 0: not known
};

/// What the layout gives that job.
struct JobFit {
    JobShape job;
    int lanes = 0;  ///< used: at most one per block
    std::size_t lanes_of_rank =
        0;  ///< held at once by the rank that holds most, but at epochs' ends
    std::uint64_t window_bytes = 0;
    std::uint64_t rank_bytes = 0;     ///< windows of that rank, and one ahead
    double read_amplification = 1;    ///< bytes read by all ranks over bytes of the data set
    bool lanes_divide_evenly = true;  ///< ranks divide lanes, lanes divide the batch
    bool shards_suffice = true;       ///< at least one for each node
    std::uint64_t resident_bytes = 0;
    bool fits_in_memory = false;  ///< of one node
};

/// Everything that looking tells. Advice is in whole sentences.
struct Inspection {
    std::vector<FieldLayout> layouts;
    std::vector<LabelMix> labels;
    std::optional<JobFit> fit;
    std::vector<std::string> advice;
};

/// Looks at the index and, for the mixing of labels, at label blocks: at most some thousand.
/// Errors: those of reading blocks.
Inspection inspect_dataset(std::shared_ptr<const DatasetIndex> index,
                           const std::optional<JobShape>& job = {});

/// Fields, shapes, sizes, blocks, compression, statistics, classes and shards, at most 80 columns.
std::string describe_dataset(const DatasetIndex& index);

/// Layout, mixing, what the job gets, advice; at most 80 columns but for advice.
std::string describe_inspection(const Inspection& inspection);

/// All of it, as a JSON object.
std::string inspection_json(const DatasetIndex& index, const Inspection& inspection);

}  // namespace lockstep
