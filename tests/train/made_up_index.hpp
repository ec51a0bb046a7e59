// SPDX-License-Identifier: Apache-2.0
// A data set for tests that bring the bytes of its samples themselves.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

/// Of such fields, with a file that is not there.
inline DatasetIndex made_up_index(std::vector<Field> fields,
                                  const std::string& row_order = "source") {
    Manifest manifest{.name = "made up", .uuid = "00000000-0000-8000-8000-000000000001"};
    manifest.writer = "test";
    manifest.row_order = row_order;
    manifest.samples = manifest.block_rows = 4;
    std::vector<IndexPlace> places;
    for (const Field& field : fields) places.push_back({100, 1, 7, field.name});
    manifest.fields = std::move(fields);
    manifest.shards = {{"a.h5", 50'000, 4, 0, std::string(32, 'a'), places}};
    return DatasetIndex::of_blocks("none", manifest_text(manifest), {});
}

}  // namespace lockstep::test
