// SPDX-License-Identifier: Apache-2.0
// Which sample a loss or a metric that is not finite comes from.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// A stored number that no loss can be finite with.
struct BadSample {
    std::uint64_t sample = 0;
    std::string text;        ///< "'features' of sample 3 has nan: row 3 of '/x' in 'b.h5'"
    std::string field;       ///< "features"
    bool is_finite = false;  ///< then its square is beyond f32
};

/// The first sample of `batch`, rows of `index`, that has one in an input, of those that `inputs`
/// names as --inputs does, or in a target; nothing if none of this rank's has.
std::optional<BadSample> bad_sample(const Batch& batch,
                                    const DatasetIndex& index,
                                    const std::string& inputs);

/// E701 for the loss of step `step` that names such a sample.
std::optional<Error> sample_error(double loss,
                                  std::int64_t step,
                                  const Batch& batch,
                                  const DatasetIndex& index,
                                  const TrainSettings& settings);

}  // namespace lockstep
