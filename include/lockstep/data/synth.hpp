// SPDX-License-Identifier: Apache-2.0
/// @file
/// Synthetic data that can be learned, for trials without real data.
#pragma once

#include "lockstep/data/row_source.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace lockstep {

/// classes: `images` u8 [3,size,size] and `labels`: a pattern per class, moved about, its contrast
/// changed, under noise. segmentation: `images` u8 [3,size,size] and `masks` u8 [size,size]: discs
/// and squares of a colour per class, 0 is the ground. regression: `features` f32 [size] and
/// `targets` f32 of a fixed quadratic function of them, with noise. text: `tokens` u8 [size + 1] of
/// a fixed chain in which one or two tokens decide most of the next.
enum class SynthKind { classes, segmentation, regression, text };

/// What is made up, and how much of it.
struct SynthOptions {
    SynthKind kind = SynthKind::classes;  ///< of data
    std::uint64_t seed = 0;               ///< another one, other data
    std::uint64_t samples = 10'000;       ///< how many
    std::uint64_t first = 0;              ///< number of the first sample: others are others
    std::uint32_t size = 32;     ///< height and width, 8 to 4096; features or tokens, 1 to 65536
    std::uint32_t classes = 10;  ///< 2 to 255; of text the vocabulary; not for regression
};

/// Every byte is a function of (kind, seed, size, classes, sample) in whole numbers: the same on
/// any machine. Errors: E102.
std::unique_ptr<RowSource> make_synthetic(const SynthOptions& options);

}  // namespace lockstep
