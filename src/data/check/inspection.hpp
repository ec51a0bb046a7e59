// SPDX-License-Identifier: Apache-2.0
// The facts about inspected data, before they become text or JSON: the layout, rows from evenly
// spaced places, and what both say of training.
#pragma once

#include "lockstep/data/check.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "hdf5/contents.hpp"
#include "transform/image.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Rows of one field, in ascending order, contiguous.
struct SampledRows {
    ElementType type = ElementType::u8;
    std::vector<std::int64_t> shape;  ///< shape of a row
    std::uint64_t rows = 0, of = 0;   ///< number of rows read, and of all rows
    std::vector<std::byte> bytes;

    std::span<const std::byte> row(std::uint64_t number) const;
};

/// Returns all rows if they take at most 8 MiB. Otherwise it reads that much from 16 evenly spaced
/// places, or one row from each of fewer places if blocks are large. Returns nothing if reading one
/// would take more than 512 MiB. Errors: those of BlockReader.
std::optional<SampledRows> sample_rows(const std::shared_ptr<const DatasetIndex>& index,
                                       std::size_t field);

/// A summary of the finite values; `count` 0: there are none.
struct ValueSummary {
    double least = 0, most = 0, mean = 0;
    std::uint64_t count = 0, not_finite = 0;
    bool are_whole = true;
};

/// Returns number `i` of rows of any type.
double value_at(ElementType type, std::span<const std::byte> rows, std::size_t i);

ValueSummary summary_of(const SampledRows& sample);

/// Returns true if each row, of several numbers, has one 1, and 0 elsewhere.
bool is_one_hot(const SampledRows& sample);

/// Returns "0 .. 255, mean 72.9", and the number of values that are not finite.
std::string range_text(const ValueSummary& summary);

/// Returns how often each whole number occurs; nothing for real ones or more than `most`.
std::map<std::int64_t, std::uint64_t> whole_counts(const SampledRows& sample, std::size_t most);

/// How the numbers of a row are an image: `[C, H, W]`, `[H, W, C]`, or `[H, W]`.
enum class PixelOrder { channels_first, channels_last, plane };

/// At most 64 of the rows, eight in a line, each shrunk to at most 96 pixels or enlarged to at
/// least 48, with 2 pixels between them. u8 as they are, other types from the least value, black,
/// to the largest; three channels and more as red, green and blue of the first three, else the
/// first as grey. `sample.shape` has as many dimensions as `order` says.
Image contact_sheet(const SampledRows& sample, PixelOrder order);

/// How many images that shows.
std::uint64_t images_on_sheet(const SampledRows& sample);

struct FieldLayout {
    std::string field;
    bool is_chunked = false;
    bool is_cut = false;  ///< chunks hold parts of samples
    std::uint64_t blocks = 0;
    std::uint64_t block_bytes = 0;  ///< decoded size of a whole block
    std::uint64_t raw_bytes = 0, stored_bytes = 0;

    double ratio() const {  ///< decoded bytes divided by stored ones
        return static_cast<double>(raw_bytes) /
               static_cast<double>(stored_bytes > 0 ? stored_bytes : 1);
    }
};

/// The mixing of a label field's classes within blocks.
struct LabelMix {
    std::string field;
    double whole_bits = 0;  ///< entropy of the classes of all samples
    double block_bits = 0;  ///< mean entropy within the examined blocks
    std::uint64_t blocks = 0;

    /// 1: a block has the classes of the whole; 0: a block has one class.
    double mixing() const { return whole_bits > 0 ? block_bits / whole_bits : 1; }
};

/// The effects of the layout on a job.
struct JobFit {
    JobShape job;
    int lanes = 0;  ///< used lanes: at most one per block
    std::size_t lanes_of_rank =
        0;  ///< most windows that a rank holds at once, except at the ends of epochs
    std::uint64_t window_bytes = 0;
    std::uint64_t rank_bytes = 0;     ///< windows of that rank, and one ahead
    double read_amplification = 1;    ///< bytes read by all ranks divided by those of the data set
    bool lanes_divide_evenly = true;  ///< ranks divide lanes, lanes divide the batch
    bool shards_suffice = true;       ///< at least one shard for each node
    std::uint64_t resident_bytes = 0;
    bool fits_in_memory = false;  ///< memory of one node
};

/// The layout of fields and advice on it, in whole sentences.
struct LayoutReport {
    std::vector<FieldLayout> fields;
    std::vector<LabelMix> labels;
    std::optional<JobFit> fit;
    std::vector<std::string> advice;
};

/// Examines the index and, for the mixing of labels, at most some thousand label blocks. Errors:
/// those of reading blocks.
LayoutReport layout_report(const std::shared_ptr<const DatasetIndex>& index,
                           const std::optional<JobShape>& job = {});

/// A data set of foreign files, or a field.
struct InspectedData {
    std::string name;                 ///< "/x/data", or for a field "images"
    std::string type;                 ///< "u8", "a compound of id, mass"
    std::vector<std::uint64_t> size;  ///< by dimension, samples first
    std::string storage;              ///< "chunks [100, 28, 28], deflate"
    std::string obstacle;             ///< the reason why it cannot be streamed; "" if it can
    std::string fault;        ///< the reason why none of its values were read; "" if some were
    bool is_damaged = false;  ///< reading failed with `fault`, and `remedy` says what helps
    std::string remedy;
    std::optional<ValueSummary> values;  ///< summary of `rows_read` rows
    bool is_one_hot = false;             ///< each of these rows has one 1, and 0 elsewhere
    std::uint64_t rows_read = 0;
    std::uint64_t replaced = 0;  ///< missing numbers among `values` that training has another for
    std::vector<std::string> class_names;  ///< none: classes are numbers without names
    std::vector<std::uint64_t> class_counts;
    std::uint64_t classes_in_rows = 0;  ///< number of classes that were counted
    bool are_classes_numbered = false;  ///< numbered from 0; else each is named by its value
};

/// Files after the first, opened with the fields that are suggested for it.
struct OtherFiles {
    std::uint64_t files = 0, opened = 0;
    std::string fault;  ///< the fault of one of them; "" if all fit together
};

/// A written sheet of images.
struct ImageSheet {
    fs::path path;
    std::uint64_t images = 0, of = 0;
};

/// A command that trains, or the reason why there is none.
struct TrainCommand {
    std::string line;
    std::string obstacle;  ///< "" if there is a line
    std::string fix;       ///< with a line: what else the data may be, and how to train on that
};

/// The whole result of an inspection.
struct Inspection {
    fs::path data;      ///< value for --data
    std::string title;  ///< title for files without fields; "" if there are fields
    std::vector<InspectedData> all;
    bool is_cut_off = false;           ///< there may be more
    std::vector<fs::path> files;       ///< foreign files; none for packed data
    std::vector<FieldMapping> fields;  ///< fields of these, given or suggested
    std::shared_ptr<const DatasetIndex>
        index;  ///< index of the fields; null if they cannot be opened
    OtherFiles others;
    LayoutReport layout;
    std::optional<ImageSheet> sheet;
    TrainCommand train;

    bool is_of_fields() const { return title.empty(); }
    /// Returns the data of a field of the index; null if it is not listed.
    const InspectedData* data_of(const Field& field) const;
};

/// A field that training would have, and the values of it that were seen.
struct TrainField {
    std::string name;
    std::vector<std::uint64_t> shape;  ///< shape of a sample; images as [C, H, W] or [H, W]
    std::uint64_t samples = 0;
    const InspectedData* data = nullptr;

    std::uint64_t elements() const {
        return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
    }
    std::uint64_t side(std::size_t from_end) const {
        return shape.size() < from_end ? 1 : shape[shape.size() - from_end];
    }
    std::uint64_t pixels() const { return side(1) * side(2); }
    bool is_damaged() const { return data && data->is_damaged; }
    bool is_finite() const { return !values() || values()->not_finite == data->replaced; }
    bool has_classes(double most) const {
        const bool are_counted = data && data->are_classes_numbered;
        const bool are_several =
            are_counted ? data->class_counts.size() > 1 : !values() || values()->most >= 1;
        return is_within(most) && are_several;
    }
    bool may_be_classes() const {
        constexpr double most_apart = 100;
        return values() && values()->are_whole && values()->most - values()->least <= most_apart;
    }
    bool is_far_from_1() const {
        constexpr double far = 100;
        return values() && std::max(values()->most, -values()->least) > far && data->type != "u8";
    }
    bool is_within(double most) const {
        return !values() || (values()->least >= 0 && values()->most <= most);
    }

    /// Of all its samples, not only of those that were looked at.
    bool is_constant() const {
        return values() && values()->count > 1 && data->rows_read == samples &&
               values()->least == values()->most;
    }

    double least() const { return values()->least; }

  private:
    const ValueSummary* values() const { return data && data->values ? &*data->values : nullptr; }
};

/// Returns the command for the fields of the index, with the built-in model, the task and the batch
/// that fit them.
TrainCommand train_command(const Inspection& inspection);

/// Returns a remedy that adds the missing field `name`, which is `what`, from a NumPy file.
std::string way_to_add(const AskedFiles& asked, const std::string& what, const std::string& name);

/// Returns lines of at most `columns` where possible, except advice and commands.
std::string inspection_text(const Inspection& inspection, std::size_t columns);

/// Returns an object with a line break at its end.
std::string inspection_json(const Inspection& inspection);

}  // namespace lockstep
