// SPDX-License-Identifier: Apache-2.0
// What a stream of a data set gives, end to end.
#pragma once

#include "lockstep/data/batch_stream.hpp"

#include "support/caught.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep::test {

/// All rows of field number `field`, in stored order, through a stream.
inline std::vector<std::byte> streamed(const DatasetIndex& index, std::size_t field) {
    BatchStream stream(std::make_shared<const DatasetIndex>(index),
                       {.order = OrderKind::sequential, .batch = 13});
    std::vector<std::byte> rows;
    for (;;) {
        const Batch batch = stream.next();
        rows.insert(rows.end(), batch.fields[field].begin(), batch.fields[field].end());
        if (batch.next.epoch > 0) return rows;
    }
}

/// The error of opening files of others, of code "none" where they open.
inline Error error_of_opening(const std::vector<fs::path>& files,
                              const std::vector<FieldMapping>& fields) {
    return error_of([&] { DatasetIndex::open_foreign(files, fields); });
}

}  // namespace lockstep::test
