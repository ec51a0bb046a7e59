// SPDX-License-Identifier: Apache-2.0
// The header of an NPY file, read and written.
#pragma once

#include "lockstep/data/manifest.hpp"

#include "column.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What an NPY file's header says.
struct NpyLayout {
    std::string descr;  ///< type of its elements, as numpy spells it: "<f4"
    std::vector<std::uint64_t> shape;
    std::uint64_t data_offset = 0;
};

/// What an NPY file of a field holds: C order, little-endian.
struct NpyHeader {
    ElementType type = ElementType::u8;
    std::vector<std::uint64_t> shape;
    std::uint64_t data_offset = 0;  ///< set by reading

    std::uint64_t data_bytes() const;
};

inline constexpr std::string_view npy_magic = "\x93NUMPY";

/// Whether it begins as NPY files do.
bool is_npy(const InputFile& file);

/// Reads the header of a file in C order. Errors: E214.
NpyLayout read_npy_layout(const InputFile& file);

/// Errors: E214 unless the file is exactly as long as elements of `element_bytes` need.
void check_npy_bytes(const InputFile& file, const NpyLayout& layout, std::size_t element_bytes);

/// Reads and checks the header, and that the file is exactly as long as it says. Errors: E214.
NpyHeader read_npy_header(const InputFile& file);

/// A version 1 header, padded so that data begin at a multiple of 64 bytes.
std::string npy_header_text(ElementType type, const std::vector<std::uint64_t>& shape);

}  // namespace lockstep
