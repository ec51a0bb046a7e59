// SPDX-License-Identifier: Apache-2.0
// The lanes that a rank's slices are drawn in.
#pragma once

#include "lockstep/observe/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Numbered from 0: steps, then those of collectives by bucket, then the other collectives.
class Lanes {
  public:
    explicit Lanes(const StepTrace& trace) {
        std::map<std::pair<std::int64_t, std::string>, std::size_t> found;
        for (const TraceSlice& slice : trace.slices) found.emplace(place_of(slice), 0);
        for (auto& [place, number] : found) {
            number = names_.size();
            names_.push_back(place.second);
        }
        numbers_ = std::move(found);
    }

    const std::vector<std::string>& names() const { return names_; }

    std::size_t of(const TraceSlice& slice) const { return numbers_.at(place_of(slice)); }

  private:
    static std::pair<std::int64_t, std::string> place_of(const TraceSlice& slice) {
        std::string name = lane_of(slice);
        if (slice.kind != SliceKind::collective) return {-1, std::move(name)};
        return {slice.bucket >= 0 ? slice.bucket : std::int64_t{1} << 32, std::move(name)};
    }

    std::vector<std::string> names_;
    std::map<std::pair<std::int64_t, std::string>, std::size_t> numbers_;
};

}  // namespace lockstep
