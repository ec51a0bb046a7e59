// SPDX-License-Identifier: Apache-2.0
// Finds the sample that causes a loss or a metric that is not finite.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// A stored number that makes every loss infinite or NaN.
struct BadSample {
    std::uint64_t sample = 0;
    std::string text;        ///< "'features' of sample 3 has nan: row 3 of '/x' in 'b.h5'"
    std::string field;       ///< "features"
    bool is_finite = false;  ///< its square exceeds f32
};

/// Returns the first sample of `batch`, rows of `index`, with such a number in a target or in an
/// input named by `inputs` (the form of --inputs). Returns nothing if none of this rank's samples
/// has one.
std::optional<BadSample> bad_sample(const Batch& batch,
                                    const DatasetIndex& index,
                                    const std::string& inputs);

/// Returns E701 for the loss of step `step` that names such a sample.
std::optional<Error> sample_error(double loss,
                                  std::int64_t step,
                                  const Batch& batch,
                                  const DatasetIndex& index,
                                  const TrainSettings& settings);

}  // namespace lockstep
