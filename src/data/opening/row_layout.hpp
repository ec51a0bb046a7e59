// SPDX-License-Identifier: Apache-2.0
// The words that may stand behind a field's path, and what they claim of its samples.
#pragma once

#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// "CHW, HWC, HW, label, onehot, value": for messages.
std::string layout_words();

/// In upper or lower case, and with an N for the samples in front; nothing for other words.
std::optional<RowLayout> parse_layout(std::string_view word);

/// The word for `layout`; "" for none.
std::string_view layout_word(RowLayout layout);

/// Whether the field is of class numbers, by its layout or, where none is stated, by its name.
bool may_be_label(const FieldMapping& mapping);

/// As manifests have it; "" if there is nothing to say.
std::string layout_text(RowLayout layout);

/// Whether `field` of `file`, made by `mapping`, can have the layout that is stated, or does
/// without. Errors: E235 for another number of dimensions, and for images whose sizes leave open
/// what counts their channels.
void check_layout(const FieldMapping& mapping,
                  const Field& field,
                  const std::filesystem::path& file);

}  // namespace lockstep
