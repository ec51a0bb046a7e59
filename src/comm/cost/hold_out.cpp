// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

std::vector<HeldOut> hold_out(const MachineCost& cost,
                              const Measurements& measured,
                              BufferPlace place,
                              int ranks) {
    std::vector<HeldOut> points;
    for (const Measurement& row : measured.rows) {
        const bool copies = row.algorithm == Algorithm::shared_memory && place == BufferPlace::own;
        if (row.type != DataType::float32 || copies) continue;
        const auto predicted =
            predict_s(row.algorithm, cost, static_cast<double>(row.bytes), ranks);
        if (predicted) points.push_back({row, *predicted});
    }
    return points;
}

double median_error(std::span<const HeldOut> points) {
    std::vector<double> errors;
    for (const HeldOut& point : points) errors.push_back(std::abs(point.error()));
    std::ranges::sort(errors);
    return errors.empty() ? 0 : errors[errors.size() / 2];
}

}  // namespace lockstep
