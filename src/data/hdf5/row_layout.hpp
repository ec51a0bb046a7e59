// SPDX-License-Identifier: Apache-2.0
// The layouts that may follow a field's path, and their requirements; labels that are not class
// numbers, but texts or one-hot rows.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"

#include "file_facts.hpp"
#include "sandbox.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns "CHW, HWC, HW, label, onehot, value", for messages.
std::string layout_words();

/// Returns the same layout for a field.
RowLayout row_layout(ImageLayout layout);

/// Parses upper or lower case, with an optional N for the samples in front; nothing for other
/// words.
std::optional<RowLayout> parse_layout(std::string_view word);

/// Returns the word for `layout`; "" for none.
std::string_view layout_word(RowLayout layout);

/// Returns true if the field holds class numbers, by its layout or, if none is stated, by its name.
bool may_be_label(const FieldMapping& mapping);

/// Returns true if a sample has one class, by the field's layout or, if none is stated, by its
/// name.
bool is_one_label(const FieldMapping& mapping);

/// Returns the form for manifests; "" for none.
std::string layout_text(RowLayout layout);

/// Returns true if a sample of `dimensions` dimensions can have the layout.
bool fits(RowLayout layout, std::size_t dimensions);

/// Rows that do not fit their stated layout.
struct LaidOutRows {
    std::string field, place;  ///< "images", "'/x' in 'a.h5'"
    std::uint64_t count = 0;
    std::vector<std::int64_t> shape;  ///< shape of a row
    std::string one_each;             ///< remedy for files of one sample each; "": none
    std::string otherwise;            ///< remedy for rows that are samples
};

/// Returns E235: the same text wherever a layout is given.
Error misfit(RowLayout layout, const LaidOutRows& rows);

/// Takes labels and targets for columns of samples. Those of [1, N], as MATLAB writes a column, are
/// N samples if another field has N, or if they are alone in their file. Targets lose their last
/// dimensions of 1, but for one.
void settle_columns(std::vector<DatasetFacts>& datasets,
                    const std::vector<FieldMapping>& fields,
                    bool are_alone);

/// Checks that the channels of images are known. Errors: E235 for images of `file` whose sizes
/// leave that open, if no layout is stated.
void check_is_settled(const FieldMapping& mapping, const Field& field, const fs::path& file);

/// Says, once, that labels [n, K] may be one-hot: what Keras' users have is not what it looks like.
void suggest_one_hot(const FieldMapping& mapping, const Field& field);

/// The classes of all samples, in their order.
struct LabelColumn {
    std::vector<std::string> names;      ///< by class; none if they have none
    std::vector<std::uint64_t> counts;   ///< samples, by class
    std::vector<std::uint32_t> numbers;  ///< the class, by sample

    /// Returns u8 if that numbers all classes, else i32.
    ElementType type() const { return counts.size() <= 256 ? ElementType::u8 : ElementType::i32; }

    /// Returns the numbers as elements of type().
    std::vector<std::byte> bytes() const;
};

/// Classes named by texts: the distinct texts of all files, numbered in sorted order, byte by byte.
/// Bounded memory: a million classes, 64 MiB of names.
class TextLabels {
  public:
    /// Adds the first `rows` of a data set, read by libhdf5 in its child process. Errors: E210 for
    /// an empty or too long text and for too many, naming file and row; those of
    /// Sandbox::read_lists().
    void add(Sandbox& sandbox, const RowsRequest& from);

    LabelColumn finish();

  private:
    std::uint32_t number_of(std::string text, const RowsRequest& from, std::uint64_t row);

    std::map<std::string, std::uint32_t> met_;  // numbered in the order of appearance
    std::uint64_t name_bytes_ = 0;
    std::vector<std::uint32_t> numbers_;
};

/// Adds the classes of the next rows, of `type`, to `column`, whose counts are as many as a row has
/// numbers: one is 1, in the place of the class, and the others are 0. `first` is the number of the
/// first row in the file. Errors: E210 naming file and row.
void add_hot_rows(LabelColumn& column,
                  ElementType type,
                  std::span<const std::byte> rows,
                  const RowsRequest& from,
                  std::uint64_t first);

/// Reads the classes of one-hot rows in an index of `files`. Errors: as add_hot_rows().
LabelColumn classes_of_hot_rows(const DatasetIndex& index,
                                std::size_t field,
                                const std::vector<RowsRequest>& files);

/// Returns the samples of each class, 0 to the largest label, by reading the whole field. Errors:
/// E210 for a label that is no class.
std::vector<std::uint64_t> counted_classes(const DatasetIndex& index, std::size_t field);

}  // namespace lockstep
