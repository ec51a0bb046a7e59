// SPDX-License-Identifier: Apache-2.0
// The results of tuning, for people, for programs, and as a file for `train --config`.
#pragma once

#include "lockstep/core/json.hpp"

#include "tune/trials.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct Tuning {
    std::int64_t steps = 0;           ///< steps of each training
    int rounds = 0;                   ///< rounds of each knob
    int virtual_ranks = 1;            ///< V of all trainings
    int trainings = 0;                ///< number of trainings
    double step_s = 0;                ///< original time of a step, by the first training
    std::vector<KnobResult> knobs{};  ///< knobs that were tried, in turn
    std::vector<std::string>
        left{};        ///< knobs that were not tried, with the reason: "io-threads: it was given"
    Variant chosen{};  ///< values that are written; empty: nothing
    SpeedUp confirmed{};        ///< the choice compared with the original, in separate turns
    int turns = 0;              ///< number of these turns; 0: nothing was chosen
    std::string parameters{};   ///< hash that all speed-only trainings share
    bool changes_bits = false;  ///< the choice decides bits, as was allowed
};

/// Returns one line for each value of the knob: its time for a step, and the gain.
std::string knob_text(const KnobResult& result);

/// Returns the conclusion from all of them.
std::string verdict_text(const Tuning& tuning);

/// Returns TOML with `chosen`; only comments if it is empty.
std::string config_of(const Tuning& tuning, const std::string& when);

Json tuning_json(const Tuning& tuning);

/// Returns the hash that all trainings with settings of speed alone share. Errors: E743 naming the
/// setting and value that changed it.
std::string common_parameters(const std::vector<KnobResult>& knobs, const std::string& first);

}  // namespace lockstep
