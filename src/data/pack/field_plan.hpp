// SPDX-License-Identifier: Apache-2.0
// The rules of field names: images are CHW, class labels are i64.
#pragma once

#include "lockstep/data/sources.hpp"

#include "column.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// A field, and the conversion of stored rows to its rows.
struct FieldPlan {
    Field field;
    RowTransform transform;  ///< empty: unchanged
};

/// Remedies for a field that does not suit its name, as commands or options. Both or none.
struct FieldWays {
    std::function<std::string(const std::string& name, bool is_label)> given;
    /// Returns a command with a Python expression of its array x and of NumPy, n.
    std::function<std::string(const std::string& numbers)> rewritten;
};

/// Plans a field; `shape` is one stored sample's. "images" of two dimensions get a channel, those
/// of three become CHW. "labels" and "..._labels" are whole numbers: one per sample become i64; any
/// numbers, one per class, stay. The layout of "masks" of two dimensions is HW. Other fields stay
/// unchanged. Errors: E214 naming `origin`; E106 if `layout` is needed.
FieldPlan plan_field(const std::string& name,
                     ElementType type,
                     std::vector<std::int64_t> shape,
                     ImageLayout layout,
                     const fs::path& origin,
                     const FieldWays& ways = {});

/// Converts u8, i32 or i64 to i64.
RowTransform widening(ElementType from);

/// Checks that some field has images if `layout` is stated. Errors: E106.
void check_has_images(const std::vector<NamedInput>& inputs, ImageLayout layout);

/// Refuses channels for images of two dimensions, when one option applies to all. Errors: E235.
/// `one_each`: as in LaidOutRows.
void check_has_channels(const NamedInput& images,
                        ImageLayout layout,
                        std::uint64_t count,
                        const std::vector<std::int64_t>& shape,
                        const std::string& one_each);

/// Checks that no field is named twice in the values of --`option`. Errors: E103.
void check_names(const std::string& option, const std::vector<NamedInput>& inputs);

}  // namespace lockstep
