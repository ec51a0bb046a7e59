// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which numbers of a sample's shape are its channels, height and width.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Whether samples are stored as [H, W, C].
bool has_channels_last(const Field& field);

/// As training takes it: "C 3, H 32, W 32", of masks and images of two dimensions "H 28, W 28"; ""
/// of a field without such axes.
std::string axes_text(const Field& field);

/// Whether `shape`, of three dimensions, may be [H, W, C] as well as [C, H, W]: never guess
/// then. Its last number is at most 4, or at most half of the others, or they alone are equal.
bool may_have_channels_last(const std::vector<std::int64_t>& shape);

}  // namespace lockstep
