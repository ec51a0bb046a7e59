// SPDX-License-Identifier: Apache-2.0
// Figures of each class: precision, recall, F1, and the area under the ROC curve.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Returns the number of scores that are told apart in the ROC curve of each of so many classes: as
/// many counts for any number of them.
constexpr std::int64_t score_bins(std::int64_t classes) {
    return (1 << 15) / std::max<std::int64_t>(classes, 1);
}

/// Returns i64 [classes * 2 * score_bins(classes)]: for each class, how many samples of other
/// classes and of it have a score in each bin. A score is the log-odds of the class's probability,
/// from -16 to 16.
at::Tensor score_counts(const at::Tensor& logits, const at::Tensor& labels);

/// The figures of a data set.
struct ClassFigures {
    /// "f1" and, of scores, "auc": means over the classes that have samples or were predicted, or
    /// that have samples and are not all. Not a number if there is none.
    std::map<std::string, double> means;
    std::string table;  ///< for people, a line for each class
};

/// `confusion` is confusion_counts()'s, `scores` score_counts()'s; empty: without the area.
/// F1 is 2 TP / (2 TP + FP + FN). The area is the share of pairs of a sample of the class and
/// another in which the former has the higher score (Fawcett 2006,
/// https://doi.org/10.1016/j.patrec.2005.10.010); pairs in one bin count half.
ClassFigures class_figures(std::span<const std::int64_t> confusion,
                           std::span<const std::int64_t> scores,
                           const Field& field);

}  // namespace lockstep
