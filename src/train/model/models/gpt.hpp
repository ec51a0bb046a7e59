// SPDX-License-Identifier: Apache-2.0
// A decoder transformer over tokens, GPT-2's by the names and shapes of its parameters (Radford et
// al., "Language Models are Unsupervised Multitask Learners", 2019).
#pragma once

#include "model/models/layers.hpp"

#include <cstdint>
#include <memory>

namespace lockstep::models {

/// The smallest GPT-2 by default: 124,439,808 parameters.
struct GptShape {
    std::int64_t vocabulary = 50257;
    std::int64_t context = 1024;  ///< most tokens of a sequence
    std::int64_t layers = 12, heads = 12, width = 768;
    double dropout = 0.1;
};

/// i64 [n, T] with T <= context -> logits f32 [n, T, vocabulary] of each token's next. Errors:
/// E217 a width that heads do not divide; of forward(), a sequence that is too long.
std::shared_ptr<Layer> gpt(const GptShape& shape, const ModelSettings& settings);

}  // namespace lockstep::models
