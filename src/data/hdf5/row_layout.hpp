// SPDX-License-Identifier: Apache-2.0
// The layouts that may follow a field's path, and their requirements.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"

#include "file_facts.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
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

/// Errors: E235 if `field`, of ":cf", is of a data set that cannot be unpacked.
void check_unpacks(const DatasetFacts& facts, const FieldMapping& field, const fs::path& file);

/// What to warn of where a data set has attributes of the CF conventions and `field` has no ":cf";
/// "" if they change nothing, and of class numbers.
std::string unasked_unpacking(const DatasetFacts& facts, const FieldMapping& field);

}  // namespace lockstep
