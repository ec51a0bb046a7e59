// SPDX-License-Identifier: Apache-2.0
// One read of a file into many places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <sys/uio.h>

namespace lockstep {

/// A list of places that consecutive bytes of a file go to; reused. One thread.
class ScatterRead {
  public:
    void clear() { places_.clear(); }
    void add(std::span<std::byte> place) {
        if (!place.empty()) places_.push_back({place.data(), place.size()});
    }

    /// Fills the places from `offset`, across short reads; uses them up. Returns the bytes read,
    /// less only at the end of the file. Errors: E402.
    std::uint64_t run(int fd, std::uint64_t offset, const std::filesystem::path& path);

  private:
    std::vector<iovec> places_;
};

}  // namespace lockstep
