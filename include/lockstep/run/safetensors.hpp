// SPDX-License-Identifier: Apache-2.0
/// @file
/// The safetensors container (https://github.com/huggingface/safetensors#format): written in fp32,
/// and read as floats, whoever wrote it.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/json.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A named run of fp32 values.
struct SafetensorsEntry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::span<const float> values;  ///< borrowed; needed for writing only
    std::uint64_t offset = 0;       ///< of the first byte in the file; filled in by writing
    Hash128 hash;                   ///< of the bytes; filled in by writing
};

/// The first bytes of a file whose header is `header`: its length, the text, spaces up to a
/// multiple of 64 bytes.
std::string framed_header(const Json& header);

/// The first bytes of a file with `entries` in this order: length and header, a multiple of 64.
std::string safetensors_header(std::span<const SafetensorsEntry> entries);

/// Writes `entries` in order to a new file and flushes it to disk; `wrote` hears of bytes of values
/// every now and then, how many in all. Errors: E401, E402, E405.
void write_safetensors(const std::filesystem::path& path,
                       std::span<SafetensorsEntry> entries,
                       const std::function<void(std::uint64_t)>& wrote = {});

/// What elements are stored as; `other`: not as numbers that become floats.
enum class StoredFloat { f16, bf16, f32, f64, other };

/// One tensor of a file.
struct StoredTensor {
    std::string name;
    std::string dtype;  ///< as the file spells it: "F32"
    StoredFloat type = StoredFloat::other;
    std::vector<std::int64_t> shape;
    std::uint64_t offset = 0, bytes = 0;  ///< in the file

    std::uint64_t count() const;  ///< elements
};

/// Its header is checked when it is opened: tensors lie within the file, side by side.
class SafetensorsFile {
  public:
    /// Errors: E201, E202, E309.
    explicit SafetensorsFile(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return path_; }            ///< as it was given
    const std::vector<StoredTensor>& tensors() const { return tensors_; }  ///< as they lie

    /// Fills `out`, of tensor.count(), rounding f64 to nearest. Errors: E309 if the file ends.
    void read(const StoredTensor& tensor, std::span<float> out) const;

  private:
    void check_places(std::uint64_t data_bytes);

    std::filesystem::path path_;
    UniqueFd fd_;
    std::vector<StoredTensor> tensors_;
};

/// XXH3-128 of the file's bytes, hexadecimal. Errors: E201, E202, E402.
std::string file_digest(const std::filesystem::path& path);

/// A command that makes safetensors of the file at `path`, which begins with `start`; "" where none
/// is known.
std::string way_to_safetensors(std::string_view start, const std::filesystem::path& path);

/// The command that exports the run which `path`, one of its files or folders, belongs to: with
/// RUN in place of a name where no folder above `path` is a run.
std::string export_command(const std::filesystem::path& path);

/// Errors: E206 where `path` is a folder, naming the command that makes a file of a run.
void check_is_weights_file(const std::filesystem::path& path);

/// How the file's names differ from the model's.
struct Renaming {
    std::string prefix;          ///< "module."; "": they do not differ by one
    bool is_in_the_file = true;  ///< else in the model
};

/// The prefix that makes names of `unexpected`, which only the file has, of most of `missing`,
/// which only the model has, or the other way round.
Renaming renaming_between(std::span<const std::string> missing,
                          std::span<const std::string> unexpected);

/// A command for Python alone that writes the file at `path` with the model's names.
std::string rename_command(const Renaming& renaming, const std::filesystem::path& path);

}  // namespace lockstep
