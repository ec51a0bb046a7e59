// SPDX-License-Identifier: Apache-2.0
/// @file
/// Named tensors as one file for other programs.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/zip_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What an exported tensor's elements are, little-endian.
enum class ExportedElement { f32, i64, f64, f16, bf16, i32, i16, i8, u8, boolean, complex64 };

/// Returns the number of elements of a tensor.
std::uint64_t elements_of(const std::vector<std::int64_t>& shape);

/// A tensor whose values are fetched when they are written.
struct ExportedTensor {
    std::string name;
    ExportedElement element = ExportedElement::f32;
    std::vector<std::int64_t> shape;
    std::function<std::vector<std::byte>()> values;

    std::uint64_t bytes() const;  ///< size of its values
};

/// What becomes of a file that has the name already.
enum class Existing { kept, replaced };

/// A large file that gets its name when it is complete. It is written beside `path` as
/// .NAME.partial, which is removed if finish() is not reached.
class NewFile {
  public:
    /// Creates the partial file. Errors: E407 if `path` exists and is kept, E401.
    explicit NewFile(const fs::path& path, Existing existing = Existing::kept);
    ~NewFile();
    NewFile& operator=(NewFile&&) = delete;

    void write(std::span<const std::byte> bytes);   ///< Errors: E402, E405
    std::uint64_t bytes() const { return bytes_; }  ///< bytes written so far

    /// Sets `wrote`, which is called with bytes() after each write.
    void tell(std::function<void(std::uint64_t)> wrote) { wrote_ = std::move(wrote); }

    /// Flushes and renames the file.
    void finish();

  private:
    fs::path path_, partial_;
    UniqueFd fd_;
    std::uint64_t bytes_ = 0;
    std::function<void(std::uint64_t)> wrote_;
    bool is_finished_ = false;
};

/// Returns the header of an NPY file in C order (numpy.lib.format, version 1).
std::string npy_header(ExportedElement element, const std::vector<std::int64_t>& shape);

/// Writes the format of https://github.com/huggingface/safetensors#format.
void write_safetensors(NewFile& file, std::span<const ExportedTensor> tensors);

/// What numpy.savez() writes: a ZIP archive, not compressed, of NAME.npy. Errors: E106 beyond 4
/// GiB, which need another kind of archive, and for bf16.
void write_npz(NewFile& file, std::span<const ExportedTensor> tensors);

/// Other bytes of an entry, as many as it has.
struct ReplacedEntry {
    ZipEntry entry;
    std::function<std::vector<std::byte>()> bytes;
};

/// Writes the archive to `out` byte for byte, but for entries of `replaced`, by their offsets, and
/// their checksums. Entries must not overlap.
void copy_zip(const ZipFile& archive,
              const std::map<std::uint64_t, ReplacedEntry>& replaced,
              NewFile& out);

}  // namespace lockstep
