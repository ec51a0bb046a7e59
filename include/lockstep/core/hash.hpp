// SPDX-License-Identifier: Apache-2.0
/// @file
/// XXH3 hashes (https://github.com/Cyan4973/xxHash, BSD-2): they detect damage, not attacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Returns XXH3-64 with seed 0.
std::uint64_t hash64(std::span<const std::byte> bytes);

/// A value of XXH3-128 with seed 0, high word first as in its canonical form.
struct Hash128 {
    std::uint64_t high = 0;  ///< the first 16 digits of hex()
    std::uint64_t low = 0;   ///< the last 16 digits
    bool operator==(const Hash128&) const = default;
    std::string hex() const;  ///< 32 lower-case digits
};

/// Returns the hash of `bytes`.
Hash128 hash128(std::span<const std::byte> bytes);

/// Returns the hash of the text's bytes.
Hash128 hash128(std::string_view text);

/// Computes XXH3-128 over a stream. Move-only.
class Hasher128 {
  public:
    Hasher128();
    ~Hasher128();
    Hasher128(Hasher128&&) noexcept;
    Hasher128& operator=(Hasher128&&) noexcept;

    /// Appends `bytes`; the way in which a stream is cut does not matter.
    void add(std::span<const std::byte> bytes);
    Hash128 value() const;  ///< hash of all bytes added so far

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Returns XXH3-128 of the file's bytes, hexadecimal. Errors: E201, E202, E402.
std::string file_digest(const std::filesystem::path& path);

/// Returns 16 lower-case digits.
std::string hex64(std::uint64_t value);

/// Returns a view of trivially copyable values as bytes.
template <class T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
    return std::as_bytes(values);
}

/// Returns the text's bytes.
inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace lockstep
