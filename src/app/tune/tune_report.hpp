// SPDX-License-Identifier: Apache-2.0
// What tuning found, for people, for programs, and as a file for `train --config`.
#pragma once

#include "lockstep/core/json.hpp"

#include "tune/trials.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// All of it.
struct Tuning {
    std::int64_t steps = 0;           ///< of each training
    int rounds = 0;                   ///< that the ways of a knob took
    int virtual_ranks = 1;            ///< V, of all trainings
    int trainings = 0;                ///< in all
    double step_s = 0;                ///< as it was, by the first training
    std::vector<KnobResult> knobs{};  ///< that were tried, in turn
    std::vector<std::string> left{};  ///< "io-threads: it was given": what was not, and why
    Variant chosen{};                 ///< what is written; empty: nothing
    SpeedUp confirmed{};              ///< chosen against what there was, in turns of their own
    int turns = 0;                    ///< that this took; 0: nothing was chosen
    std::string parameters{};         ///< hash of those that may not differ
    bool changes_bits = false;        ///< chosen decides bits, as was allowed
};

/// One line for each way of the knob: its time for a step, and what of that is gain.
std::string knob_text(const KnobResult& result);

/// What follows from all of them.
std::string verdict_text(const Tuning& tuning);

/// TOML with `chosen`; comments alone where nothing is.
std::string config_of(const Tuning& tuning, const std::string& when);

Json tuning_json(const Tuning& tuning);

/// The hash that all trainings with settings of speed alone have in common. Errors: E743 naming the
/// setting and value that changed it.
std::string common_parameters(const std::vector<KnobResult>& knobs, const std::string& first);

}  // namespace lockstep
