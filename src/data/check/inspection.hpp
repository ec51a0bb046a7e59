// SPDX-License-Identifier: Apache-2.0
// What is known of inspected data before it is text or JSON.
#pragma once

#include "lockstep/data/check.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "hdf5/contents.hpp"
#include "sampled_values.hpp"

#include <cstdint>
#include <filesystem>
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

/// What the layout gives a job.
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

/// How fields lie, and what to do about it, in whole sentences.
struct LayoutReport {
    std::vector<FieldLayout> fields;
    std::vector<LabelMix> labels;
    std::optional<JobFit> fit;
    std::vector<std::string> advice;
};

/// Looks at the index and, for the mixing of labels, at label blocks: at most some thousand.
/// Errors: those of reading blocks.
LayoutReport layout_report(const std::shared_ptr<const DatasetIndex>& index,
                           const std::optional<JobShape>& job = {});

/// A data set of others' files, or a field.
struct InspectedData {
    std::string name;                 ///< "/x/data", or of a field "images"
    std::string type;                 ///< "u8", "a compound of id, mass"
    std::vector<std::uint64_t> size;  ///< by dimension, samples first
    std::string storage;              ///< "chunks [100, 28, 28], deflate"
    std::string obstacle;             ///< why it cannot be streamed; "" if it can
    std::string fault;                ///< why none of its values were read; "" if some were
    bool is_damaged = false;
    std::optional<ValueSummary> values;  ///< of `rows_read` rows
    bool is_one_hot = false;             ///< each of these rows has one 1, and 0 elsewhere
    std::uint64_t rows_read = 0;
    std::vector<std::string> class_names;  ///< none: they have numbers alone
    std::vector<std::uint64_t> class_counts;
    std::uint64_t classes_in_rows = 0;  ///< that were counted
    bool are_classes_numbered = false;  ///< from 0; else each is called by its value
};

/// Files beside the first, with the fields that are suggested for it.
struct OtherFiles {
    std::uint64_t files = 0, opened = 0;
    std::string fault;  ///< what is wrong with one of them; "" if all go together
};

/// A written sheet of images.
struct ImageSheet {
    std::filesystem::path path;
    std::uint64_t images = 0, of = 0;
};

/// A command that trains, or why there is none.
struct TrainCommand {
    std::string line;
    std::string obstacle, fix;  ///< "" if there is a line
};

/// All of it.
struct Inspection {
    std::filesystem::path data;  ///< as --data takes it
    std::string title;           ///< of files without fields; "" where there are fields
    std::vector<InspectedData> all;
    bool is_cut_off = false;                    ///< there may be more
    std::vector<std::filesystem::path> files;   ///< of others; none of packed data
    std::vector<FieldMapping> fields;           ///< of these, given or suggested
    std::shared_ptr<const DatasetIndex> index;  ///< of the fields; null where they do not open
    OtherFiles others;
    LayoutReport layout;
    std::optional<ImageSheet> sheet;
    TrainCommand train;

    bool is_of_fields() const { return title.empty(); }
    /// Of a field of the index; null if it is not listed.
    const InspectedData* data_of(const Field& field) const;
};

/// For the fields of the index, with the built-in model, the task and the batch that fit them.
TrainCommand train_command(const Inspection& inspection);

/// Why none of the data sets of the first file can be a model's input, and what to do.
TrainCommand no_input(AskedFiles asked, const std::vector<Candidate>& all);

/// As lines of `columns` where they fit, but for advice and commands.
std::string inspection_text(const Inspection& inspection, std::size_t columns);

}  // namespace lockstep
