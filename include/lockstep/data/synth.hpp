// SPDX-License-Identifier: Apache-2.0
/// @file
/// Synthetic data that can be learned, for trials without real data.
#pragma once

#include "lockstep/data/row_source.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace lockstep {

/// The kinds of generated data. classes: `images` u8 [3,size,size] and `labels`: a pattern per
/// class, shifted, with varying contrast and noise. segmentation: `images` u8 [3,size,size] and
/// `masks` u8 [size,size]: discs and squares of a colour per class; class 0 is the background.
/// regression: `features` f32 [size] and `targets` f32: a fixed quadratic function of them, with
/// noise. text: `tokens` u8 [size + 1] of a fixed Markov chain in which one or two tokens decide
/// most of the next.
enum class SynthKind { classes, segmentation, regression, text };

/// Settings of generated data.
struct SynthOptions {
    SynthKind kind = SynthKind::classes;  ///< kind of data
    std::uint64_t seed = 0;               ///< another seed gives other data
    std::uint64_t samples = 10'000;       ///< number of samples
    std::uint64_t first = 0;     ///< number of the first sample: each number gives another sample
    std::uint32_t size = 32;     ///< height and width, 8 to 4096; features or tokens, 1 to 65536
    std::uint32_t classes = 10;  ///< 2 to 255; for text the vocabulary; not for regression
};

/// Makes the source. Every byte is a function of (kind, seed, size, classes, sample) in whole
/// numbers: the same on any machine. Errors: E102.
std::unique_ptr<RowSource> make_synthetic(const SynthOptions& options);

}  // namespace lockstep
