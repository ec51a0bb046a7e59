// SPDX-License-Identifier: Apache-2.0
/// @file
/// Named tensors as one file for other programs.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// CRC-32 of zip (APPNOTE.TXT 4.4.7) of bytes after others whose value is `before`; 0: there are
/// none.
std::uint32_t zip_crc(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// What an exported tensor's elements are, little-endian.
enum class ExportedElement { f32, i64, f64, f16, bf16, i32, i16, i8, u8, boolean, complex64 };

/// A tensor whose values are fetched when they are written.
struct ExportedTensor {
    std::string name;
    ExportedElement element = ExportedElement::f32;
    std::vector<std::int64_t> shape;
    std::function<std::vector<std::byte>()> values;

    std::uint64_t bytes() const;  ///< of its values
};

/// A large file that appears under its name when it is whole. Written beside `path` as
/// .NAME.partial, which goes if finish() is not reached.
class NewFile {
  public:
    /// Errors: E407 if `path` exists, E401.
    explicit NewFile(const std::filesystem::path& path);
    ~NewFile();
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    void write(std::span<const std::byte> bytes);   ///< Errors: E402, E405
    std::uint64_t bytes() const { return bytes_; }  ///< written so far

    /// `wrote` hears bytes() after each write.
    void tell(std::function<void(std::uint64_t)> wrote) { wrote_ = std::move(wrote); }

    /// Flushed and renamed.
    void finish();

  private:
    std::filesystem::path path_, partial_;
    UniqueFd fd_;
    std::uint64_t bytes_ = 0;
    std::function<void(std::uint64_t)> wrote_;
    bool is_finished_ = false;
};

/// The header of an NPY file in C order (numpy.lib.format, version 1).
std::string npy_header(ExportedElement element, const std::vector<std::int64_t>& shape);

/// https://github.com/huggingface/safetensors#format
void write_safetensors(NewFile& file, std::span<const ExportedTensor> tensors);

/// What numpy.savez() writes: a ZIP archive, not compressed, of NAME.npy. Errors: E106 beyond 4
/// GiB, which need another kind of archive, and for bf16.
void write_npz(NewFile& file, std::span<const ExportedTensor> tensors);

}  // namespace lockstep
