// SPDX-License-Identifier: Apache-2.0
// The settings that `lockstep tune` tries, their short trainings in turns, and the results for time
// and bits: for people, for programs, and as a file for `train --config`.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

#include "train/short_training.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The speed of a second way relative to a first one, from times taken in turns.
struct SpeedUp {
    double median = 1, least = 1, most = 1;  ///< over the rounds
    double noise = 0;  ///< part of it that the spread of the times can explain

    /// Returns true if every round shows a gain, and it exceeds the noise.
    bool is_gain() const { return least > 1 && median - 1 > noise; }
};

/// Compares the seconds of the two ways, round by round; at least one round. The noise is half of
/// the relative spread of each way's times, added.
SpeedUp speed_up(std::span<const double> before, std::span<const double> after);

/// Returns "1.42 times as fast (1.38 to 1.45)".
std::string speed_up_text(const SpeedUp& found);

/// Returns the index in `ways` of the fastest way beyond the noise; 0, the first, if there is none.
/// Each way has seconds by round; a way with fewer rounds was not possible.
std::size_t quickest_way(std::span<const std::vector<double>> ways);

/// Options of `train` with values that replace the user's.
using Variant = std::map<std::string, std::string>;

/// A setting, and the values to try: the first is the user's present one.
struct Knob {
    std::string name{};
    bool decides_bits = false;  ///< another value may give a run other bits
    std::vector<Variant> variants{};
};

/// The facts on which choices depend.
struct KnobFacts {
    int cores = 1;                  ///< cores that this process may use
    int np = 1;                     ///< present number of ranks
    int threads = 1;                ///< present threads of each rank
    int virtual_ranks = 1;          ///< upper limit of ranks
    std::set<std::string> given{};  ///< options that the user has set: they stay
};

/// Returns all names, in the order of trial.
std::vector<std::string> knob_names();

/// Returns the knob of that name; `current` is chosen already. With fewer than two variants there
/// is nothing to try.
Knob knob_of(const std::string& name, const KnobFacts& facts, const Variant& current);

/// Returns "--np 2 --transport mpi".
std::string settings_text(const Variant& variant);

/// Returns the variant's value for the knob, or all of it; for threads "2 in each of 1 rank(s)".
std::string variant_text(const Knob& knob, const Variant& variant);

struct TrialResult {
    double step_s = 0;  ///< mean time of a step, without the first
    double wall_s = 0;  ///< total time, with its start
    int virtual_ranks = 1;
    std::string parameters{};  ///< hash
};

/// The common part of all trainings, and the end of the last one.
struct Trials {
    fs::path scratch;                ///< where runs are made; must outlive this
    std::vector<std::string> words;  ///< those of train, without options that trials choose
    /// Called ten times a second with the present trial; may throw.
    std::function<void(const std::string&)> look;
    Variant fixed{};        ///< settings of every later training
    std::string why_not{};  ///< why the last training refused to run
    int exit_code = 0;      ///< of the last training
    int count = 0;          ///< trainings so far

    /// Trains once. Returns nothing if the training refused to run, with the reason in `why_not`.
    std::optional<TrialResult> train(const Variant& variant, std::int64_t steps);

    /// Returns E705 for a training that should have run; it ends with that one's code.
    Error failure() const;
};

/// The results of all values of a knob, in turns.
struct KnobResult {
    Knob knob;
    std::vector<std::vector<double>> step_s;  ///< by variant, by round; fewer: it does not run
    std::vector<std::string> parameters;      ///< by variant; "": it does not run
    std::vector<std::string> why_not;         ///< by variant
    std::size_t quickest = 0;                 ///< beyond the noise; 0: the present value
};

/// Adds the result of one more training of a variant. Errors: E743 if its bits differ from those of
/// the rounds before.
void add_round(KnobResult& result, std::size_t variant, const TrialResult& trial);

/// Tries every variant `rounds` times, A B C A B C. Errors: E705 if the first does not run.
KnobResult try_knob(Trials& trials, const Knob& knob, std::int64_t steps, int rounds);

/// The results of tuning.
struct Tuning {
    std::int64_t steps = 0;           ///< steps of each training
    int rounds = 0;                   ///< rounds of each knob
    int virtual_ranks = 1;            ///< V of all trainings
    int trainings = 0;                ///< number of trainings
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
