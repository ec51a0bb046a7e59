// SPDX-License-Identifier: Apache-2.0
/// @file
/// Settings that change nothing where they stand: who gave one is mistaken, and is told.
#pragma once

#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class RunAge { created, resumed };

/// What the effect of a setting depends on besides other settings.
struct EffectFacts {
    std::uint64_t samples = 0;
    std::int64_t total_steps = 0;
    RunAge age = RunAge::created;
};

/// Names of settings that others leave without an effect, given or not.
std::vector<std::string> idle_settings(const TrainSettings& settings);

/// Virtual ranks are settled. One sentence for each given setting without an effect that might be
/// meant so: it came from a file or a variable, which serve other runs, too; or the run exists and
/// must go on with what it was made with. Errors: E107 for any other; E102 a deadline that is no
/// Unix time.
std::vector<std::string> check_effects(const TrainSettings& settings, const EffectFacts& facts);

}  // namespace lockstep
