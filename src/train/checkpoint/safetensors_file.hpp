// SPDX-License-Identifier: Apache-2.0
// A safetensors file that anybody may have written, read as floats.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

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

    const std::filesystem::path& path() const { return path_; }
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

}  // namespace lockstep
