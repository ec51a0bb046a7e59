// SPDX-License-Identifier: Apache-2.0
#include "row_memory.hpp"

#include "memory.hpp"

namespace lockstep {

std::uint64_t row_memory(const DatasetIndex& index, std::uint64_t rows) {
    std::uint64_t bytes = 0;
    for (const Field& field : index.fields()) bytes += aligned(rows * field.bytes_per_sample());
    return bytes;
}

std::vector<std::span<std::byte>> divided(const DatasetIndex& index,
                                          std::uint64_t rows,
                                          std::span<std::byte> memory) {
    std::vector<std::span<std::byte>> fields;
    for (const Field& field : index.fields()) {
        const std::uint64_t bytes = rows * field.bytes_per_sample();
        fields.push_back(memory.first(bytes));
        memory = memory.subspan(aligned(bytes));
    }
    return fields;
}

}  // namespace lockstep
