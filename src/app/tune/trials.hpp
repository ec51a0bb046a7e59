// SPDX-License-Identifier: Apache-2.0
// The settings that `lockstep tune` tries, the short trainings that take turns with them, and what
// these show of time and bits.
#pragma once

#include "lockstep/core/error.hpp"

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

/// Of times taken in turns: how many times as fast the second way is.
struct SpeedUp {
    double median = 1, least = 1, most = 1;  ///< of the rounds
    double noise = 0;                        ///< how much of it the times' own spread can explain

    /// Every round says so, and by more than the noise.
    bool is_gain() const { return least > 1 && median - 1 > noise; }
};

/// Seconds of the two ways, round by round; at least one round. The noise is half of what each
/// way's own times spread, by its median, both added.
SpeedUp speed_up(std::span<const double> before, std::span<const double> after);

/// The middle one, or the mean of the two in the middle.
double median_of(std::vector<double> values);

/// "1.42 times as fast (1.38 to 1.45)".
std::string speed_up_text(const SpeedUp& found);

/// The index in `ways` of the way that is the quickest beyond the noise; 0, the first, where none
/// is. Each way's seconds, round by round; a way with fewer rounds was not possible.
std::size_t quickest_way(std::span<const std::vector<double>> ways);

/// Options of `train` with the values that a training has instead of the user's.
using Variant = std::map<std::string, std::string>;

/// Whether another value of a setting gives a run other bits.
enum class KnobEffect { speed_only, decides_bits };

/// A setting, and what is tried: the first is what the user has now.
struct Knob {
    std::string name{};
    KnobEffect effect = KnobEffect::speed_only;
    std::vector<Variant> variants{};
};

/// What choices depend on.
struct KnobFacts {
    int cores = 1;                  ///< that this process may use
    int np = 1;                     ///< ranks now
    int threads = 1;                ///< of each rank now
    int virtual_ranks = 1;          ///< no more ranks than these
    std::set<std::string> given{};  ///< options that the user has set: they stay
};

/// All names, in the order in which they are tried.
std::vector<std::string> knob_names();

/// The knob of that name as things stand, `current` being chosen already; fewer than two variants:
/// there is nothing to try.
Knob knob_of(const std::string& name, const KnobFacts& facts, const Variant& current);

/// "--np 2 --transport mpi".
std::string settings_text(const Variant& variant);

/// The value that the variant has for the knob, or all of it; of threads "2 in each of 1 rank(s)".
std::string variant_text(const Knob& knob, const Variant& variant);

/// What one training showed.
struct TrialResult {
    double step_s = 0;  ///< of a step on average, the first left out
    double wall_s = 0;  ///< of all of it, its start included
    int virtual_ranks = 1;
    std::string parameters{};  ///< hash
};

/// What all trainings have in common, and what they have shown so far.
class Trials {
  public:
    /// `words`: of train, without those that trials choose. `look` is called ten times a second
    /// with what is tried, and may throw. Runs are made in `scratch`, which outlives this.
    Trials(std::filesystem::path program,
           std::filesystem::path scratch,
           std::vector<std::string> words,
           std::function<void(const std::string&)> look);

    /// Trains once. Nothing where the training refused to run so, which `why_not` then tells.
    std::optional<TrialResult> train(const Variant& variant, std::int64_t steps);

    /// From now on: settings that every training has.
    void fix(const std::string& name, const std::string& value) { fixed_[name] = value; }

    const std::string& why_not() const { return why_not_; }

    /// E705 for a training that should have run: ends as it did.
    Error failure() const;

    /// How many trainings there were.
    int count() const { return count_; }

  private:
    std::filesystem::path program_, scratch_;
    std::vector<std::string> words_;
    std::function<void(const std::string&)> look_;
    Variant fixed_;
    std::string why_not_;
    int exit_code_ = 0;
    int count_ = 0;
};

/// All ways of a knob in turns.
struct KnobResult {
    Knob knob;
    std::vector<std::vector<double>> step_s;  ///< by variant, by round; fewer: it does not run
    std::vector<std::string> parameters;      ///< by variant; "": it does not run
    std::vector<std::string> why_not;         ///< by variant
    std::size_t quickest = 0;                 ///< beyond the noise; 0: what there is now
};

/// What one more training of a variant showed. Errors: E743 where its bits are not those of the
/// rounds before.
void add_round(KnobResult& result, std::size_t variant, const TrialResult& trial);

/// Tries every variant `rounds` times, A B C A B C. Errors: E705 where the first does not run.
KnobResult try_knob(Trials& trials, const Knob& knob, std::int64_t steps, int rounds);

}  // namespace lockstep
