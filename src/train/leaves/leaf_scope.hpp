// SPDX-License-Identifier: Apache-2.0
// Computes a rank's leaves at once. Operators whose results depend on a leaf's samples find its
// bounds here: batch statistics, random numbers, and products that use other kernels for other
// numbers of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep {

/// Samples of equal leaves, one leaf after another.
struct LeafCut {
    std::int64_t leaves = 1;
    std::int64_t rows = 0;  ///< samples of each leaf
    std::int64_t samples() const { return leaves * rows; }

    /// Returns true if the first dimension of `tensor` is the samples, or a fixed number of items
    /// per sample.
    bool divides(const at::Tensor& tensor) const;

    /// Returns the part of `tensor` that belongs to leaf `leaf`.
    at::Tensor part(const at::Tensor& tensor, std::int64_t leaf) const;

    /// Returns a view of a contiguous `tensor` with the leaves as a further dimension, the first.
    at::Tensor stacked(const at::Tensor& tensor) const;

    /// Returns whether `samples` are many small leaves of a GPU. One call for all of them, and
    /// copies, then start less than a call for each leaf.
    bool is_small(const at::Tensor& samples) const;

    /// Returns a copy of [samples, channels, ...] as [rows, leaves * channels, ...], in its layout.
    at::Tensor side_by_side(const at::Tensor& samples) const;

    /// Joins parts, in their layout.
    static at::Tensor whole(const std::vector<at::Tensor>& parts);
};

/// Results for operators met before, by the facts that choose their kernel: true if a sample's bits
/// equal those in its leaf alone.
using LeafVerdicts = std::map<std::vector<std::int64_t>, bool>;

/// Operators on all leaves that are compared with those on each leaf alone. `products`: those of
/// the leaves in one; `sums`: of each leaf's rows.
enum class LeafOperator : std::int64_t {
    batch_norm,
    convolution,
    convolution_backward,
    convolution_weights,
    addmm,
    mm,
    products,
    turned_products,
    sums
};

/// Returns what chooses the operator's kernel: its inputs' shapes and strides, and `numbers`.
std::vector<std::int64_t> key_of(LeafOperator which,
                                 const std::vector<at::Tensor>& inputs,
                                 std::initializer_list<at::IntArrayRef> numbers = {});

/// Buffers as forward of each leaf alone would leave them, if batch statistics were updated.
class LeafBuffers {
  public:
    /// Returns the value of leaf `leaf`, undefined if no leaf has its own.
    at::Tensor find(const at::Tensor& buffer, std::int64_t leaf) const;

    /// Returns a row for each leaf, for its forward to update: when first asked for, the present
    /// value. `buffer` has one dimension and keeps its value.
    at::Tensor rows(const at::Tensor& buffer, std::int64_t leaves);

  private:
    std::map<const void*, at::Tensor> values_;  ///< a row for each leaf
};

/// A dispatch key that LibTorch reserves and does not use; it sends operators to the kernels of a
/// scope.
constexpr c10::DispatchKey leaf_key = c10::DispatchKey::Fake;

/// A scope is current from its construction to its destruction, on the thread that made it and on
/// that of its backward. One at a time.
class LeafScope {
  public:
    /// `seeds`: those of each leaf's random numbers. `verdicts`: those of earlier scopes of the
    /// same cut. `device`: that of tensors that are cut.
    LeafScope(LeafCut cut,
              const std::vector<std::uint64_t>& seeds,
              LeafVerdicts& verdicts,
              at::Device device);
    ~LeafScope();
    LeafScope& operator=(LeafScope&&) = delete;

    /// Returns the current scope, for kernels that leaf_key selected: there is one.
    static LeafScope& current();

    /// During its lifetime no scope is current on its thread: one leaf is computed.
    class Pause {
        c10::impl::ExcludeDispatchKeyGuard excluded_{leaf_key};
    };

    /// Returns what `compare` returned when `key` was first met: whether the leaves at once have
    /// the bits of each alone.
    template <class Compare>
    bool decide(std::vector<std::int64_t> key, Compare&& compare) {
        if (const auto found = verdicts_.find(key); found != verdicts_.end()) return found->second;
        const bool is_same = compare();
        verdicts_.emplace(std::move(key), is_same);
        return is_same;
    }

    /// Returns whether two results are of one layout and have the same bits, which tell something:
    /// zeros and NaN do not.
    static bool has_same_bits(const at::Tensor& one, const at::Tensor& other);

    const LeafCut& cut() const { return cut_; }
    at::Device device() const { return device_; }

    /// Returns the random numbers of the leaves.
    std::span<const at::Generator> generators() const { return generators_; }

    /// Returns the random numbers of leaf `leaf`.
    at::Generator& generator(std::int64_t leaf) {
        return generators_[static_cast<std::size_t>(leaf)];
    }

    /// Notes that the host reads a number of `tensor`, as item() does.
    void note_read(const at::Tensor& tensor) { read_.push_back(tensor.storage().data()); }

    /// Returns the addresses of the numbers that it has read.
    const std::vector<const void*>& read() const { return read_; }

    /// By the leaves that were computed so far.
    LeafBuffers buffers;

    /// The gradient for the input of the next batch norm in backward, once its gradients by leaf
    /// are known.
    std::optional<at::Tensor> norm_input_gradient;

  private:
    LeafCut cut_;
    at::Device device_;
    LeafVerdicts& verdicts_;
    std::vector<at::Generator> generators_;
    std::vector<const void*> read_;
    c10::impl::IncludeDispatchKeyGuard included_{leaf_key};
};

/// Registers our kernels, which LibTorch calls if leaf_key is among an operator's keys. Call it
/// once in a process.
void register_leaf_kernels();

}  // namespace lockstep
