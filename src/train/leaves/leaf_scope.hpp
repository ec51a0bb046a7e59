// SPDX-License-Identifier: Apache-2.0
// While a rank's leaves are computed at once, operators whose results depend on which samples are
// in a leaf see its bounds here: batch statistics, random numbers, and products whose kernels are
// others for other numbers of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep {

/// Samples of equal leaves, one leaf after another.
struct LeafCut {
    std::int64_t leaves = 1;
    std::int64_t rows = 0;  ///< samples of each
    std::int64_t samples() const { return leaves * rows; }

    /// Whether the first dimension of `tensor` is the samples, or so many of something a sample.
    bool divides(const at::Tensor& tensor) const;

    /// What of `tensor` is leaf `leaf`'s.
    at::Tensor part(const at::Tensor& tensor, std::int64_t leaf) const;

    /// The reverse, in the layout of the parts.
    static at::Tensor whole(const std::vector<at::Tensor>& parts);
};

/// Of operators that have been met, by what decides which kernel computes them: whether a sample's
/// bits are those that it has in its leaf alone.
using LeafVerdicts = std::map<std::vector<std::int64_t>, bool>;

/// What brings an operator to the kernels of a scope: a name that LibTorch keeps and does not use.
constexpr c10::DispatchKey leaf_key = c10::DispatchKey::Fake;

/// Current from its construction to its destruction, on the thread that made it, and where backward
/// of what is computed there runs. One at a time.
class LeafScope {
  public:
    /// `seeds`: of each leaf's random numbers. `verdicts`: of earlier scopes of the same cut.
    /// `device`: of tensors that are cut.
    LeafScope(LeafCut cut,
              const std::vector<std::uint64_t>& seeds,
              LeafVerdicts& verdicts,
              at::Device device);
    ~LeafScope();
    LeafScope(const LeafScope&) = delete;
    LeafScope& operator=(const LeafScope&) = delete;

    /// For kernels that leaf_key has brought here: one is.
    static LeafScope& current();

    /// While it lives, no scope is current on its thread: what is computed is one leaf's.
    class Pause {
        c10::impl::ExcludeDispatchKeyGuard excluded_{leaf_key};
    };

    /// What `compute` makes of `rows`, tensors whose first dimension is the samples: of all at
    /// once, or leaf by leaf where that has other bits, as `key` was found to have when it was
    /// first met.
    template <class Compute>
    at::Tensor compute(std::vector<std::int64_t> key,
                       const std::vector<at::Tensor>& rows,
                       Compute&& compute) {
        const auto found = verdicts_.find(key);
        if (found != verdicts_.end() && found->second) return compute(rows);
        std::vector<at::Tensor> parts;
        for (std::int64_t leaf = 0; leaf < cut_.leaves; ++leaf) {
            std::vector<at::Tensor> own;
            for (const at::Tensor& tensor : rows) own.push_back(cut_.part(tensor, leaf));
            parts.push_back(compute(own));
        }
        at::Tensor all = LeafCut::whole(parts);
        if (found == verdicts_.end())
            verdicts_.emplace(std::move(key), has_same_bits(compute(rows), all));
        return all;
    }

    const LeafCut& cut() const { return cut_; }
    at::Device device() const { return device_; }

    /// As after forward of leaf `leaf` by itself, where batch statistics were updated; else
    /// nothing.
    const at::Tensor* buffer(const at::Tensor& buffer, std::int64_t leaf) const;

    /// Random numbers of leaf `leaf`.
    at::Generator& generator(std::int64_t leaf) {
        return generators_[static_cast<std::size_t>(leaf)];
    }

    /// What `buffer` holds is what leaf `leaf` makes of it.
    void keep_buffer(const at::Tensor& buffer, std::int64_t leaf);

    /// The host reads a number of `tensor`, as item() does.
    void note_read(const at::Tensor& tensor) { read_.push_back(tensor.storage().data()); }

    /// Where the numbers are that it has read.
    const std::vector<const void*>& read() const { return read_; }

    /// What the next batch norm of backward gives its input: its gradients by leaf are known.
    std::optional<at::Tensor> norm_input_gradient;

  private:
    static bool has_same_bits(const at::Tensor& one, const at::Tensor& other);

    LeafCut cut_;
    at::Device device_;
    LeafVerdicts& verdicts_;
    std::vector<at::Generator> generators_;
    std::map<const void*, std::vector<at::Tensor>> buffers_;
    std::vector<const void*> read_;
    c10::impl::IncludeDispatchKeyGuard included_{leaf_key};
};

/// Once in a process: LibTorch calls kernels of ours where leaf_key is among an operator's keys.
void register_leaf_kernels();

}  // namespace lockstep
