// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.hpp"

#include "lockstep/core/files.hpp"

#include <vector>

#include <fmt/format.h>
#include <xxhash.h>
#ifdef LOCKSTEP_XXHASH_DISPATCHES
#include <xxh_x86dispatch.h>  // the same names, for the best instructions there are
#endif

namespace lockstep {
namespace {

Hash128 from_xxh(XXH128_hash_t hash) {
    return {hash.high64, hash.low64};
}

}  // namespace

std::uint64_t hash64(std::span<const std::byte> bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

std::string Hash128::hex() const {
    return fmt::format("{:016x}{:016x}", high, low);
}

Hash128 hash128(std::span<const std::byte> bytes) {
    return from_xxh(XXH3_128bits(bytes.data(), bytes.size()));
}

Hash128 hash128(std::string_view text) {
    return hash128(bytes_of(text));
}

struct Hasher128::State {
    XXH3_state_t* xxh = XXH3_createState();
    State() { XXH3_128bits_reset(xxh); }
    ~State() { XXH3_freeState(xxh); }
    State& operator=(State&&) = delete;
};

Hasher128::Hasher128() : state_(std::make_unique<State>()) {}
Hasher128::~Hasher128() = default;
Hasher128::Hasher128(Hasher128&&) noexcept = default;
Hasher128& Hasher128::operator=(Hasher128&&) noexcept = default;

void Hasher128::add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

Hash128 Hasher128::value() const {
    return from_xxh(XXH3_128bits_digest(state_->xxh));
}

std::string file_digest(const fs::path& path) {
    const UniqueFd fd = open_for_reading(path);
    Hasher128 hasher;
    std::vector<std::byte> piece(std::size_t{1} << 20);
    for (std::uint64_t at = 0;;) {
        const std::size_t got = read_at(fd.value(), piece, at, path);
        hasher.add(std::span(piece).first(got));
        at += got;
        if (got < piece.size()) return hasher.value().hex();
    }
}

std::string hex64(std::uint64_t value) {
    return fmt::format("{:016x}", value);
}

}  // namespace lockstep
