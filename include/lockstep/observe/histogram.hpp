// SPDX-License-Identifier: Apache-2.0
/// @file
/// How values are spread, in the buckets that TensorBoard's histograms have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Some 1,500 buckets, each a tenth wider than the one before, on both sides of 0: those of
/// tensorflow/core/lib/histogram/histogram.cc.
class Histogram {
  public:
    /// Counts `value`, in some 20 ns; one that is not finite is passed over.
    void add(double value);

    bool empty() const { return count_ == 0; }           ///< nothing was counted
    std::int64_t count() const { return count_; }        ///< of values
    double min() const { return min_; }                  ///< of values
    double max() const { return max_; }                  ///< of values
    double sum() const { return sum_; }                  ///< of values
    double sum_squares() const { return sum_squares_; }  ///< of values

    /// A bucket, or several empty ones in a row.
    struct Bucket {
        double limit = 0;  ///< values are below it, and not below that of the one before
        double count = 0;
    };
    std::vector<Bucket> buckets() const;  ///< by limit

  private:
    std::vector<std::int64_t> counts_;
    std::int64_t count_ = 0;
    double min_ = 0, max_ = 0, sum_ = 0, sum_squares_ = 0;
};

}  // namespace lockstep
