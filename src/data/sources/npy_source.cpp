// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "field_plan.hpp"
#include "npy_header.hpp"

#include <fmt/format.h>

namespace lockstep {

std::unique_ptr<RowSource> open_npy(const std::vector<NamedInput>& inputs, ImageLayout layout) {
    check_names("npy", inputs);
    std::vector<Field> fields;
    std::vector<Column> columns;
    std::vector<std::uint64_t> rows;
    for (const NamedInput& input : inputs) {
        const auto file = std::make_shared<const InputFile>(input.place);
        const NpyHeader header = read_npy_header(*file);
        check(!header.shape.empty(), [&] {
            return malformed_input(input.place, "a list of samples", "it is a single value");
        });
        const std::uint64_t count = header.shape[0];
        const auto row_bytes = static_cast<std::size_t>(header.data_bytes() / count);
        FieldPlan plan = plan_field(input.field,
                                    header.type,
                                    {header.shape.begin() + 1, header.shape.end()},
                                    layout,
                                    input.place);
        fields.push_back(std::move(plan.field));
        columns.push_back(
            {{{file, header.data_offset, count, row_bytes}}, row_bytes, std::move(plan.transform)});
        rows.push_back(count);
    }
    check_counts(inputs, rows);
    return std::make_unique<ColumnSource>(std::move(fields), std::move(columns));
}

std::unique_ptr<RowSource> open_images(const std::filesystem::path& images,
                                       const std::filesystem::path& labels,
                                       ImageLayout layout,
                                       const SourceOptions& options) {
    if (!is_npy(InputFile(images)) && !is_npy(InputFile(labels)))
        return open_idx(images, labels, options);
    return open_npy({{"images", images.string()}, {"labels", labels.string()}}, layout);
}

}  // namespace lockstep
