// SPDX-License-Identifier: Apache-2.0
// The words that may stand behind a field's path, and what they claim of its samples.
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

/// "CHW, HWC, HW, label, onehot, value": for messages.
std::string layout_words();

/// As a field's own; unstated for what is not.
RowLayout row_layout(ImageLayout layout);

/// In upper or lower case, and with an N for the samples in front; nothing for other words.
std::optional<RowLayout> parse_layout(std::string_view word);

/// The word for `layout`; "" for none.
std::string_view layout_word(RowLayout layout);

/// Whether the field is of class numbers, by its layout or, where none is stated, by its name.
bool may_be_label(const FieldMapping& mapping);

/// As manifests have it; "" if there is nothing to say.
std::string layout_text(RowLayout layout);

/// Whether a sample of so many dimensions can have the layout.
bool fits(RowLayout layout, std::size_t dimensions);

/// Rows that do not fit the layout that they are said to have.
struct LaidOutRows {
    std::string field, place;  ///< "images", "'/x' in 'a.h5'"
    std::uint64_t count = 0;
    std::vector<std::int64_t> shape;  ///< of a row
    std::string stack;      ///< command that makes one file of several of one sample; "": none
    std::string otherwise;  ///< what to do about rows that are samples
};

/// E235: the same words wherever a layout is given.
Error misfit(RowLayout layout, const LaidOutRows& rows);

/// Errors: E235 for images of `file` whose sizes leave open what counts their channels, where no
/// layout is stated.
void check_is_settled(const FieldMapping& mapping,
                      const Field& field,
                      const std::filesystem::path& file);

/// Errors: E235 if `field`, of ":cf", is of a data set that cannot be unpacked.
void check_unpacks(const DatasetFacts& facts,
                   const FieldMapping& field,
                   const std::filesystem::path& file);

/// What to warn of where a data set has attributes of the CF conventions and `field` has no ":cf";
/// "" if they change nothing, and of class numbers.
std::string unasked_unpacking(const DatasetFacts& facts, const FieldMapping& field);

}  // namespace lockstep
