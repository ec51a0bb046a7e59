// SPDX-License-Identifier: Apache-2.0
// Rows of a source as values, and files of the formats that sources read.
#pragma once

#include "lockstep/data/sources.hpp"

#include "pack/npy_header.hpp"

#include <string>
#include <vector>

namespace lockstep::test {

template <class T>
std::vector<T> values_of(const RowSource& source, std::size_t field, std::uint64_t row) {
    std::vector<T> values(source.fields()[field].bytes_per_sample() / sizeof(T));
    source.read(field, row, std::as_writable_bytes(std::span(values)));
    return values;
}

inline std::int64_t label_of(const RowSource& source, std::size_t field, std::uint64_t row) {
    return values_of<std::int64_t>(source, field, row).at(0);
}

/// All rows of field number `field`.
inline std::vector<std::byte> rows_of(const RowSource& source, std::size_t field = 0) {
    std::vector<std::byte> rows;
    for (std::uint64_t row = 0; row < source.samples(); ++row) {
        const auto one = values_of<std::byte>(source, field, row);
        rows.insert(rows.end(), one.begin(), one.end());
    }
    return rows;
}

template <class T>
std::string bytes_in(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// An NPY file with this dictionary as its header.
inline std::string npy_of(const std::string& dictionary,
                          const std::string& data,
                          char version = 1) {
    std::string text("\x93NUMPY", 6);
    text += {version, '\0', static_cast<char>(dictionary.size()), '\0'};
    if (version > 1) text += {'\0', '\0'};
    return text + dictionary + data;
}

template <class T>
std::string npy_text(ElementType type,
                     const std::vector<std::uint64_t>& shape,
                     const std::vector<T>& values) {
    return npy_header_text(type, shape) + bytes_in(values);
}

}  // namespace lockstep::test
