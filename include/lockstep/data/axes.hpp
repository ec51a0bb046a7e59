// SPDX-License-Identifier: Apache-2.0
/// @file
/// The axes of a sample's shape: channels, height and width.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Returns true if samples are stored as [H, W, C].
bool has_channels_last(const Field& field);

/// Returns the axes as training takes them: "C 3, H 32, W 32", for masks and images of two
/// dimensions "H 28, W 28"; "" for a field without such axes.
std::string axes_text(const Field& field);

/// Returns true if `shape`, of three dimensions, may be [H, W, C] as well as [C, H, W]: then never
/// guess. That is so if its last number is at most 4, or at most half of the others, or if the
/// first two alone are equal.
bool may_have_channels_last(const std::vector<std::int64_t>& shape);

}  // namespace lockstep
