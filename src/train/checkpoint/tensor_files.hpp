// SPDX-License-Identifier: Apache-2.0
// Named tensors as one file for other programs.
#pragma once

#include "checkpoint/new_file.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What an exported tensor's elements are, little-endian.
enum class ExportedElement { f32, i64 };

/// A tensor whose values are fetched when they are written.
struct ExportedTensor {
    std::string name;
    ExportedElement element = ExportedElement::f32;
    std::vector<std::int64_t> shape;
    std::function<std::vector<std::byte>()> values;

    std::uint64_t bytes() const;
};

/// The header of an NPY file in C order (numpy.lib.format, version 1).
std::string npy_header(ExportedElement element, const std::vector<std::int64_t>& shape);

/// https://github.com/huggingface/safetensors#format
void write_safetensors(NewFile& file, std::span<const ExportedTensor> tensors);

/// What numpy.savez() writes: a ZIP archive, not compressed, of NAME.npy. Errors: E106 beyond 4
/// GiB, which need another kind of archive.
void write_npz(NewFile& file, std::span<const ExportedTensor> tensors);

}  // namespace lockstep
