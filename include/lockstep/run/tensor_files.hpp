// SPDX-License-Identifier: Apache-2.0
/// @file
/// Named tensors in one file: of a checkpoint (https://github.com/huggingface/safetensors#format,
/// in fp32), for other programs, and weights of any program, read as floats.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/zip_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

/// A named array of fp32 values.
struct SafetensorsEntry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::span<const float> values;  ///< borrowed; needed for writing only
    std::uint64_t offset = 0;       ///< first byte in the file; filled in by writing
    Hash128 hash;                   ///< hash of the bytes; filled in by writing
};

/// Returns the first bytes of a file with `entries` in this order: the header's length, the header,
/// spaces up to a multiple of 64 bytes.
std::string safetensors_header(std::span<const SafetensorsEntry> entries);

/// How a file is written or read. Through the page cache it takes the kernel's time, which other
/// work of these cores misses. Around it (O_DIRECT) the caller waits for the disk block by block;
/// that is a wish, for not every file system can.
enum class FileAccess { cached, direct };

/// Writes `entries` in order to a new file and flushes it to disk. `wrote` is called from time to
/// time with the total of bytes of values. Errors: E225, E401, E402, E405.
void write_safetensors(const fs::path& path,
                       std::span<SafetensorsEntry> entries,
                       const std::function<void(std::uint64_t)>& wrote = {},
                       FileAccess access = FileAccess::cached);

/// The type of stored elements; `other`: they cannot become floats.
enum class StoredFloat { f16, bf16, f32, f64, other };

/// One tensor of a file.
struct StoredTensor {
    std::string name;
    std::string dtype;  ///< type as the file spells it: "F32"
    StoredFloat type = StoredFloat::other;
    std::vector<std::int64_t> shape;
    std::uint64_t offset = 0, bytes = 0;  ///< in the file, or in its entry of an archive
    std::size_t file = 0;                 ///< which of an index's files

    std::uint64_t count() const;  ///< number of elements
};

/// An open file of weights: safetensors, the index of several such files beside it ("weight_map",
/// as Hugging Face has it), or an .npz archive. Opening checks its header: tensors lie within the
/// file, without gaps.
class WeightsFile {
  public:
    /// Opens a file. Errors: E201 also if a file of an index is missing, E202, E206, E309.
    explicit WeightsFile(const fs::path& path);

    const fs::path& path() const { return path_; }                         ///< path as given
    const std::vector<StoredTensor>& tensors() const { return tensors_; }  ///< in the file's order

    /// Fills `out`, of tensor.count() floats; f64 is rounded to nearest. Errors: E309 if the file
    /// ends early, or an archive's checksum differs.
    void read(const StoredTensor& tensor, std::span<float> out) const;

  private:
    struct OpenFile {
        fs::path path;
        UniqueFd fd;
    };

    void open_index();
    void open_safetensors(const fs::path& path);
    void open_archive();

    fs::path path_;
    std::vector<OpenFile> files_;
    std::optional<ZipFile> archive_;
    std::vector<StoredTensor> tensors_;
};

/// Returns the digest of a file of weights; of an index, that of all its files. Errors: as
/// WeightsFile().
std::string weights_digest(const fs::path& path);

/// Returns a command that makes safetensors of the file at `path`, which begins with `start`; "" if
/// none is known.
std::string way_to_safetensors(std::string_view start, const fs::path& path);

/// Returns the command that exports the run which `path` belongs to. RUN replaces its name if no
/// folder above `path` is a run.
std::string export_command(const fs::path& path);

/// Refuses a folder. Errors: E206 naming the command that makes a file of a run.
void check_is_weights_file(const fs::path& path);

/// The difference between the file's names and the model's.
struct Renaming {
    std::string prefix;          ///< "module."; "": the difference is not a prefix
    bool is_in_the_file = true;  ///< the file has the prefix; else the model
};

/// Returns the prefix that turns names that only the file has (`unexpected`) into most of those
/// that only the model has (`missing`), or the reverse.
Renaming renaming_between(std::span<const std::string> missing,
                          std::span<const std::string> unexpected);

/// Returns a command for plain Python that writes the file at `path` with the model's names.
std::string rename_command(const Renaming& renaming, const fs::path& path);

}  // namespace lockstep
