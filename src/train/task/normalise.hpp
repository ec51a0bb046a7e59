// SPDX-License-Identifier: Apache-2.0
// What is subtracted from numbers, and by what they are divided, before a model is given them.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"
#include "lockstep/plan/settings.hpp"

#include <string>

namespace lockstep {

/// Returns the field with the mean and deviation that --normalise has for it: its own, none, or
/// given ones. Errors: E103 for other text.
Field normalised_as(Field field, const std::string& normalise);

/// Returns the data set with normalised_as() of all fields that are not learned.
DatasetIndex with_used_statistics(const DatasetIndex& data, const std::string& normalise);

/// Returns the treatment of a field's numbers between the data set and the model, for the log.
std::string treatment(const Field& field, const TrainSettings& settings, ManifestKind kind);

/// Checks that --normalise, and a `normalise` in `transform` as the user wrote it, have an effect
/// on the inputs. Errors: E248; E103 as normalised_as(), or for a field that is no input.
void check_normalises(const TrainSettings& settings,
                      const std::string& transform,
                      const DatasetIndex& index);

}  // namespace lockstep
