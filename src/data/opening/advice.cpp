// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/advice.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include "way_out.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

bool is_foreign(const DatasetIndex& data) {
    return data.manifest().kind == ManifestKind::foreign;
}

// Returns the files as the user gave them, without those that links lead to.
AskedFiles asked_for(const DatasetIndex& data) {
    AskedFiles asked;
    for (const Shard& shard : data.shards())
        if (shard.samples > 0) asked.files.push_back(data.path() / shard.name);
    for (const Field& field : data.fields()) asked.fields.push_back({field.name, field.source});
    return asked;
}

}  // namespace

std::string way_to_rewrite(const DatasetIndex& data,
                           std::size_t field,
                           const std::string& numbers) {
    if (is_foreign(data))
        return "let h5py write it so, in a folder NAME that you give instead: " +
               rewrite_command(asked_for(data), field, numbers);
    return fmt::format("pack {} of NumPy's array x in place of x, where n is numpy", numbers);
}

std::string way_to_rename(const DatasetIndex& data,
                          std::size_t field,
                          const std::string& name,
                          const std::string& layout) {
    const Field& named = data.fields()[field];
    if (!is_foreign(data))
        return fmt::format("pack the data again, with '{}' as the name of '{}'", name, named.name);
    return "--field " + shell_word(fmt::format("{}={}{}", name, named.source, layout));
}

std::string row_text(const DatasetIndex& data, const Field& field, std::uint64_t sample) {
    const auto& shards = data.shards();
    const auto after = std::ranges::upper_bound(shards, sample, {}, &Shard::first_sample);
    const Shard& shard = *std::prev(after);
    const bool is_shuffled = data.manifest().row_order.starts_with("shuffled");
    return fmt::format("row {} of '{}' in '{}'{}",
                       grouped(sample - shard.first_sample),
                       field.source.empty() ? "/data/" + field.name : field.source,
                       (data.path() / shard.name).string(),
                       is_shuffled ? ", which packing shuffled ('lockstep data pack --keep-order' "
                                     "keeps the source's rows)"
                                   : "");
}

}  // namespace lockstep
