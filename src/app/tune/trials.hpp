// SPDX-License-Identifier: Apache-2.0
// Short trainings that take turns, and what they show of time and bits.
#pragma once

#include "lockstep/core/error.hpp"

#include "train/short_training.hpp"
#include "tune/knobs.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

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
