// SPDX-License-Identifier: Apache-2.0
// A model's profile as tables, and for programs.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/train/profile.hpp"

#include <cstddef>
#include <string>

namespace lockstep {

/// `most`: operators to list; 0: all.
std::string profile_text(const ProfileSettings& settings,
                         const ModelProfile& profile,
                         std::size_t most);

Json profile_json(const ProfileSettings& settings, const ModelProfile& profile);

}  // namespace lockstep
