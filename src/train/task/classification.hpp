// SPDX-License-Identifier: Apache-2.0
// The cross entropy of classes, and the confusion matrix.
#pragma once

#include "lockstep/data/manifest.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

namespace lockstep {

/// Cross entropy with a weight for each class, and smoothed labels (Szegedy et al.,
/// https://arxiv.org/abs/1512.00567), as in torch.nn.CrossEntropyLoss.
class ClassLoss {
  public:
    /// "balanced" weighs class c with samples / (classes * samples of c), so that the mean over
    /// the data is 1. Errors: E103 for weights that are not one number >= 0 for each class of
    /// `field`.
    ClassLoss(const TaskSettings& settings, const Field& field);

    /// Returns the sum for logits [n, classes, ...] and classes i64 [n, ...]; a class of weight w
    /// counts w times.
    at::Tensor sum(const at::Tensor& logits, const at::Tensor& classes) const {
        return reduced(logits, classes, at::Reduction::Sum);
    }
    /// [n, ...]; 0 where the class is the settings' ignore_index.
    at::Tensor of_each(const at::Tensor& logits, const at::Tensor& classes) const {
        return reduced(logits, classes, at::Reduction::None);
    }

  private:
    at::Tensor reduced(const at::Tensor& logits,
                       const at::Tensor& classes,
                       at::Reduction::Reduction reduction) const;

    at::Tensor weights_;  ///< f32 [classes]; undefined: all are 1
    double smoothing_;
    std::int64_t ignored_;
};

/// Returns i64 [number * number]: how often the row's class was predicted as the column's, without
/// those of the class `ignored`.
at::Tensor confusion_counts(const at::Tensor& classes,
                            const at::Tensor& found,
                            std::int64_t number,
                            std::int64_t ignored = -1);

/// Returns one line per true class, with its name or number: the counts of predicted classes.
std::string confusion_csv(std::span<const std::int64_t> counts, const Field& field);

}  // namespace lockstep
