// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "field_plan.hpp"
#include "format/labels.hpp"
#include "format/widening.hpp"
#include "hdf5/way_out.hpp"
#include "npy_header.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

// u64 is for labels, which packing compares with their classes: i64 does not hold all its values.
void check_holds_all(const NpyHeader& header, const NamedInput& input) {
    check(!header.widening.is_known() || header.widening.holds_all() || is_label_name(input.field),
          [&] {
              return malformed_input(
                  input.place,
                  "an NPY file that can be packed",
                  "whole numbers of 64 bits without sign are read for labels only",
                  "make floats of them: " + rewrite_npy_command(input.place, "x.astype(\"f8\")"));
          });
}

FieldWays npy_ways(const NamedInput& input) {
    return {
        .given =
            [=](const std::string& name, bool is_label) {
                return is_label ? fmt::format("--npy {}=NAME.npy after {}",
                                              name,
                                              rewrite_npy_command(input.place, "x.astype(\"i8\")"))
                                : fmt::format("--npy {}={}", name, input.place);
            },
        .rewritten =
            [=](const std::string& numbers) { return rewrite_npy_command(input.place, numbers); }};
}

// Widens what is stored, before `then` makes a row of the field of it.
RowTransform widened_first(Widening widening, RowTransform then) {
    if (!widening.is_known()) return then;
    if (!then)
        return [widening](std::span<const std::byte> stored, std::span<std::byte> out) {
            expect(widening.undo(stored, out), "a row holds whole elements");
        };
    return [widening, then](std::span<const std::byte> stored, std::span<std::byte> out) {
        const std::size_t elements = stored.size() / widening.stored_bytes();
        std::vector<std::byte> wide(elements * element_bytes(widening.type()));
        expect(widening.undo(stored, wide), "a row holds whole elements");
        then(wide, out);
    };
}

// Writes one file of this one and others that are named behind it.
std::string stack_command(const NamedInput& input) {
    return fmt::format(
        "python3 -c 'import sys,numpy as n; o,*r=sys.argv[1:]; n.save(o,n.stack([n.load(f) for f "
        "in r]))' NAME.npy {}",
        shell_word(input.place));
}

}  // namespace

std::unique_ptr<RowSource> open_npy(const std::vector<NamedInput>& inputs, ImageLayout layout) {
    check_names("npy", inputs);
    check_has_images(inputs, layout);
    std::vector<Field> fields;
    std::vector<Column> columns;
    std::vector<std::vector<std::uint64_t>> sizes;
    for (const NamedInput& input : inputs) {
        const auto file = std::make_shared<const InputFile>(input.place);
        const NpyHeader header = read_npy_header(*file);
        check(!header.shape.empty(), [&] {
            return malformed_input(input.place,
                                   "a list of samples",
                                   "it is a single value",
                                   "save an array with a row for each sample");
        });
        const std::uint64_t count = header.shape[0];
        check_holds_all(header, input);
        std::size_t row_bytes = header.stored_bytes();
        for (std::size_t d = 1; d < header.shape.size(); ++d) row_bytes *= header.shape[d];
        const std::vector<std::int64_t> shape(header.shape.begin() + 1, header.shape.end());
        check_has_channels(input, layout, count, shape, stack_command(input));
        FieldPlan plan =
            plan_field(input.field, header.type, shape, layout, input.place, npy_ways(input));
        fields.push_back(std::move(plan.field));
        columns.push_back({{{file, header.data_offset, count, row_bytes}},
                           row_bytes,
                           widened_first(header.widening, std::move(plan.transform))});
        sizes.push_back(header.shape);
    }
    check_counts(inputs, sizes);
    return std::make_unique<ColumnSource>(std::move(fields), std::move(columns));
}

std::unique_ptr<RowSource> open_images(const std::filesystem::path& images,
                                       const std::filesystem::path& labels,
                                       ImageLayout layout,
                                       const SourceOptions& options) {
    if (!is_npy(InputFile(images)) && !is_npy(InputFile(labels)))
        return open_idx(images, labels, options, layout);
    return open_npy({{"images", images.string()}, {"labels", labels.string()}}, layout);
}

}  // namespace lockstep
