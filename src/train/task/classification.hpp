// SPDX-License-Identifier: Apache-2.0
// The cross entropy of classes, and which classes were taken for which.
#pragma once

#include "lockstep/data/manifest.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Cross entropy with a weight for each class, and smoothed labels (Szegedy et al.,
/// https://arxiv.org/abs/1512.00567), as torch.nn.CrossEntropyLoss has them.
class ClassLoss {
  public:
    /// "balanced" weighs class c with samples / (classes * samples of c), so that the mean over
    /// the data is 1. Errors: E103 for weights that are not one number >= 0 for each class of
    /// `field`.
    ClassLoss(const TaskSettings& settings, const Field& field);

    /// Logits [n, classes, ...], classes i64 [n, ...]; a class that weighs w counts w times.
    at::Tensor sum(const at::Tensor& logits, const at::Tensor& classes) const;
    at::Tensor of_each(const at::Tensor& logits, const at::Tensor& classes) const;  ///< [n, ...]

  private:
    at::Tensor weights_for(const at::Tensor& logits) const;

    at::Tensor weights_;  ///< f32 [classes]; undefined: all are 1
    double smoothing_;
};

/// i64 [classes * classes]: how often the class of the row was taken for that of the column.
at::Tensor confusion_counts(const at::Tensor& classes,
                            const at::Tensor& found,
                            std::int64_t number);

/// One line a class, with their names or numbers: what it was taken for.
std::string confusion_csv(std::span<const std::int64_t> counts, const Field& field);

}  // namespace lockstep
