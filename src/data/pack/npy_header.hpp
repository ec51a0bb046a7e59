// SPDX-License-Identifier: Apache-2.0
// The header of an NPY file, read and written.
#pragma once

#include "lockstep/data/manifest.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "format/widening.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// The facts in an NPY file's header.
struct NpyLayout {
    std::string descr;  ///< type of its elements in numpy's form: "<f4"
    std::vector<std::uint64_t> shape;
    std::uint64_t data_offset = 0;
};

/// The content of an NPY file of a field, in C order.
struct NpyHeader : NpyLayout {
    ElementType type = ElementType::u8;  ///< type of the field
    Widening widening = Widening{};      ///< conversion to it; unknown: the elements have that type

    std::size_t stored_bytes() const {  ///< size of an element
        return widening.is_known() ? widening.stored_bytes() : element_bytes(type);
    }
};

/// Returns true if the file begins as NPY files do.
bool is_npy(const InputFile& file);

/// Reads the header of a file in C order. Errors: E214.
NpyLayout read_npy_layout(const InputFile& file);

/// Checks the size of the file. Errors: E214 unless it is exactly as long as elements of
/// `element_bytes` need.
void check_npy_bytes(const InputFile& file, const NpyLayout& layout, std::size_t element_bytes);

/// Reads and checks the header of whole numbers, floats or truth values, and the exact size of the
/// file. Errors: E214.
NpyHeader read_npy_header(const InputFile& file);

/// Returns true for an archive, or an array of one: "a.npz", "a.npz:NAME".
bool is_npz_place(const std::string& place);

/// Opens the NPY file at `place`, or the array NAME of ARCHIVE:NAME, an archive of NumPy's, which
/// is expanded. Errors: E201, E202; E214 naming the arrays of the archive for an option `option` of
/// `field`.
std::shared_ptr<const InputFile> open_npy_file(const NamedInput& input,
                                               const SourceOptions& options);

/// Returns a version 1 header, padded so that data begin at a multiple of 64 bytes.
std::string npy_header_text(ElementType type, const std::vector<std::uint64_t>& shape);

}  // namespace lockstep
