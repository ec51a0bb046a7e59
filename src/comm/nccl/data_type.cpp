// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/data_type.hpp"

#include "lockstep/core/error.hpp"

#include <array>

namespace lockstep {
namespace {

struct TypeRow {
    DataType type;
    std::size_t bytes;
    std::string_view name;
};
constexpr std::array type_rows = {TypeRow{DataType::float32, 4, "float"},
                                  TypeRow{DataType::bfloat16, 2, "bfloat16"},
                                  TypeRow{DataType::float64, 8, "double"},
                                  TypeRow{DataType::int64, 8, "int64"}};

const TypeRow& row_of(DataType type) {
    return type_rows[static_cast<std::size_t>(type)];
}

}  // namespace

std::size_t size_of(DataType type) {
    return row_of(type).bytes;
}

std::string_view name_of(DataType type) {
    return row_of(type).name;
}

ElementRange stripe_of(std::size_t count, DataType type, int index, int parts) {
    expect(parts > 0 && index >= 0 && index < parts, "a part of some parts");
    const std::size_t line = 64 / size_of(type), lines = count / line;
    const auto boundary = [&](int part) {
        return part == parts ? count
                             : lines * static_cast<std::size_t>(part) /
                                   static_cast<std::size_t>(parts) * line;
    };
    return {boundary(index), boundary(index + 1)};
}

}  // namespace lockstep
