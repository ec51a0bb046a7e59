// SPDX-License-Identifier: Apache-2.0
/// @file
/// The flat vector of a model: the places of tensors, buckets and stripes of ranks. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Floats per 64-byte line. Every offset and stripe boundary is a multiple, so that no vector loop
/// has a tail that depends on the owner.
inline constexpr std::size_t line_floats = 16;

/// Returns `floats` rounded up to whole lines.
constexpr std::size_t rounded_to_lines(std::size_t floats) {
    return (floats + line_floats - 1) / line_floats * line_floats;
}

/// A half-open range of floats in the flat vector.
struct FloatRange {
    std::size_t begin = 0;                            ///< the first float
    std::size_t end = 0;                              ///< one past the last
    std::size_t size() const { return end - begin; }  ///< number of floats
    bool operator==(const FloatRange&) const = default;
};

/// Returns part `index` of `of` near-equal parts of `whole`, which meet at 64-byte lines counted
/// from its begin; may be empty.
FloatRange part_of(FloatRange whole, int index, int of);

/// Largest sizes of buckets in bytes; a larger tensor has a bucket of its own.
struct BucketLimits {
    std::size_t first_bytes = 1u << 20;  ///< limit of the first bucket
    std::size_t bytes = 25u << 20;       ///< limit of each other bucket
};

/// Places tensors in the order in which backward finishes them, each at the next 64-byte line, and
/// cuts them into buckets. One more bucket, the state bucket, follows. It holds values that travel
/// with the gradients but are averaged, not optimised (running statistics, metrics).
class FlatLayout {
  public:
    /// `counts[i]`: elements of parameter i in order of registration; `state_count`: floats of
    /// state. `order`: a permutation of the parameters' indices, in the observed order of backward;
    /// empty: the reverse of registration. tensor() and bucket_of() count by registration.
    FlatLayout(std::span<const std::size_t> counts,
               std::size_t state_count,
               BucketLimits limits = {},
               std::span<const std::size_t> order = {});

    std::size_t size() const { return size_; }  ///< floats, padding included

    /// Returns the number of parameters, without state.
    std::size_t tensor_count() const { return tensors_.size(); }

    /// Returns the elements of parameter `index`, without padding.
    FloatRange tensor(std::size_t index) const { return tensors_[index]; }

    /// Returns the bucket of tensor `index`.
    std::size_t bucket_of(std::size_t index) const { return bucket_of_[index]; }

    /// Returns the number of buckets, including the state bucket, which is the last.
    std::size_t bucket_count() const { return buckets_.size(); }

    /// Returns the range of a bucket. Buckets are whole lines, in order, without gaps.
    FloatRange bucket(std::size_t index) const { return buckets_[index]; }

    /// Returns the number of tensors in `bucket`; 0 for the state bucket.
    std::size_t tensors_in(std::size_t bucket) const { return tensors_in_[bucket]; }

    std::size_t state_bucket() const { return buckets_.size() - 1; }  ///< index of the state bucket
    FloatRange state() const { return state_; }                       ///< without padding

    /// Returns the lines of `bucket` that `rank` of `ranks` owns: near-equal, in rank order, may be
    /// empty.
    FloatRange stripe(std::size_t bucket, int rank, int ranks) const {
        return part_of(buckets_[bucket], rank, ranks);
    }

  private:
    void append(std::size_t index, std::size_t count, BucketLimits limits);

    std::size_t size_ = 0;
    std::vector<FloatRange> tensors_, buckets_;
    std::vector<std::size_t> bucket_of_, tensors_in_;
    FloatRange state_;
};

/// The operations that fill slots and read sums. On a GPU they are work of the caller's stream, in
/// the order of that stream, and are finished only after wait().
class FlatMemory {
  public:
    virtual ~FlatMemory() = default;

    /// Sets `count` floats from `at` to 0.
    virtual void clear(float* at, std::size_t count) = 0;

    /// Computes into[i] += from[i] for i in [0, count).
    virtual void add(float* into, const float* from, std::size_t count) = 0;

    /// Copies `count` floats. Either side may be host memory, which must stay valid until wait().
    virtual void copy(float* to, const float* from, std::size_t count) = 0;

    /// Waits until all of these and all other work of the caller's stream is done: then the host
    /// may read. Errors: as Exchange::publish().
    virtual void wait() = 0;
};

/// Returns the host's memory, where all is done at once by the calling thread.
FlatMemory& host_memory();

}  // namespace lockstep
