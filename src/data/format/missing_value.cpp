// SPDX-License-Identifier: Apache-2.0
#include "missing_value.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include <fmt/format.h>

namespace lockstep {

Error missing_value(const Field& field,
                    const std::filesystem::path& file,
                    std::uint64_t row,
                    std::uint64_t sample) {
    const std::string layout = field.layout.empty() ? "" : ":" + field.layout;
    return {
        "E236",
        fmt::format("sample {} has a missing value: row {} of '{}' in '{}'",
                    grouped(sample),
                    grouped(row),
                    printable(field.source),
                    file.string()),
        "_FillValue, missing_value or valid_range say that it is none",
        fmt::format("leave such samples out of the file, or say what is to stand in the place of "
                    "missing values, such as --field {}",
                    shell_word(fmt::format("{}={}{}:cf=0", field.name, field.source, layout)))};
}

}  // namespace lockstep
