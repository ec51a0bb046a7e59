// SPDX-License-Identifier: Apache-2.0
// The lanes that a rank's slices are drawn in.
#pragma once

#include "lockstep/observe/trace.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// See lane_of().
struct Lane {
    std::string name;
    std::vector<const TraceSlice*> slices;  ///< in the trace's order
};

/// Steps first, then collectives by bucket, then the other collectives. They borrow from `trace`.
inline std::vector<Lane> lanes_of(const StepTrace& trace) {
    std::map<std::pair<std::int64_t, std::string>, std::vector<const TraceSlice*>> found;
    for (const TraceSlice& slice : trace.slices) {
        const std::int64_t place = slice.kind != SliceKind::collective ? -1
                                   : slice.bucket >= 0                 ? slice.bucket
                                                                       : std::int64_t{1} << 32;
        found[{place, lane_of(slice)}].push_back(&slice);
    }
    std::vector<Lane> lanes;
    for (auto& [place, slices] : found) lanes.push_back({place.second, std::move(slices)});
    return lanes;
}

}  // namespace lockstep
