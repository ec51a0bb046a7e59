// SPDX-License-Identifier: Apache-2.0
/// @file
/// The norm of all gradients, with the same bits for any split, order or number of ranks.
#pragma once

#include "lockstep/comm/exact_words.hpp"

#include <array>
#include <cstdint>
#include <span>

namespace lockstep {

/// A sum of squares of float32 without any rounding: one integer of 640 bits in units of 2^-298,
/// the square of the smallest float. It is a superaccumulator in the sense of Radford Neal, "Fast
/// exact summation using small and large superaccumulators", https://arxiv.org/abs/1505.05571. It
/// holds up to 2^64 values.
class ExactSum {
  public:
    /// Adds the square of each value. NaN and infinity are counted: see value().
    void add_squares(std::span<const float> values);

    /// Returns the sum as integers: element-wise addition of several sums' integers adds the sums.
    /// Fewer than 2^30 sums may be added before value() is called.
    std::span<std::int64_t> words() { return words_; }

    /// Returns the sum, rounded once, to nearest even. Returns NaN or infinity if any value was
    /// one.
    double value() const { return exact::rounded(words_.data()); }

  private:
    using Words = std::array<std::int64_t, exact::words>;

    void add_block(const float* values);

    Words words_{};  ///< limbs of 32 bits, least first, with room for carries; then two counts
};

}  // namespace lockstep
