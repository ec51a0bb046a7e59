// SPDX-License-Identifier: Apache-2.0
// What a field's name asks of it: images are CHW, class labels are i64.
#pragma once

#include "lockstep/data/sources.hpp"

#include "column.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// A field, and how its rows come out of the stored ones.
struct FieldPlan {
    Field field;
    RowTransform transform;  ///< empty: as they are
};

/// How a field that does not suit its name is given otherwise, as commands or options. Both or
/// none.
struct FieldWays {
    std::function<std::string(const std::string& name, bool is_label)> given;
    /// By a Python expression of its array x and of NumPy, n.
    std::function<std::string(const std::string& numbers)> rewritten;
};

/// `shape` is one stored sample's. "images" of two dimensions get a channel, of three become CHW;
/// "labels" and "..._labels" are whole numbers, one per sample, and become i64, or any, one per
/// class, and stay; the layout of "masks" of two dimensions is HW; all else stays, too.
/// Errors: E214 naming `origin`; E106 if `layout` is needed.
FieldPlan plan_field(const std::string& name,
                     ElementType type,
                     std::vector<std::int64_t> shape,
                     ImageLayout layout,
                     const fs::path& origin,
                     const FieldWays& ways = {});

/// u8, i32 or i64 to i64.
RowTransform widening(ElementType from);

/// E209 unless NPY files of these shapes have as many rows each.
void check_counts(const std::vector<NamedInput>& inputs,
                  const std::vector<std::vector<std::uint64_t>>& shapes);

/// E106 if `layout` is stated, and no field has images.
void check_has_images(const std::vector<NamedInput>& inputs, ImageLayout layout);

/// E235 if images of two dimensions are said to have channels, by one option for all.
/// `stack`: as LaidOutRows has it.
void check_has_channels(const NamedInput& images,
                        ImageLayout layout,
                        std::uint64_t count,
                        const std::vector<std::int64_t>& shape,
                        const std::string& stack);

/// E103 if a field is named twice in the values of --`option`.
void check_names(const std::string& option, const std::vector<NamedInput>& inputs);

}  // namespace lockstep
