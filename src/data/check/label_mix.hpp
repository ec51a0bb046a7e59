// SPDX-License-Identifier: Apache-2.0
// Whether blocks hold all classes or few: what a missing shuffle looks like.
#pragma once

#include "lockstep/data/inspect.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Entropy in bits of `counts`.
double entropy_bits(std::span<const std::uint64_t> counts);

/// Of each label field with at least two classes; reads evenly spaced blocks, at most `most_blocks`
/// of each field.
std::vector<LabelMix> label_mixes(std::shared_ptr<const DatasetIndex> index,
                                  std::uint64_t most_blocks);

}  // namespace lockstep
