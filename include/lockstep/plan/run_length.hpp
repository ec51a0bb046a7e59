// SPDX-License-Identifier: Apache-2.0
/// @file
/// The length of a run, its learning rate at each step, its virtual ranks, and its time limit.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/plan/settings.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

/// The length of a run.
struct RunLength {
    std::int64_t steps_per_epoch = 0;  ///< at least 1
    std::int64_t total_steps = 0;      ///< steps of all epochs
};

/// Returns the peak rate of a run: the given one, times batch by reference batch (Goyal et al.,
/// https://arxiv.org/abs/1706.02677) or the square root of that (Krizhevsky,
/// https://arxiv.org/abs/1404.5997).
double peak_rate(const TrainSettings& settings);

/// Returns a text for people about the scaled rate and the number of updates; "" without scaling.
std::string scale_text(const TrainSettings& settings, const RunLength& length);

/// Returns the learning rate of `step` (from 0) of a run with peak rate `peak`. During the warm-up
/// it grows linearly to the first value of the schedule. Over the remaining steps it follows the
/// schedule:
/// - constant: `peak`;
/// - step: `peak` times gamma for each `every` that has passed since step 0;
/// - cosine: half a cosine down to `end` (Loshchilov and Hutter, https://arxiv.org/abs/1608.03983,
///   without restarts);
/// - linear, polynomial: down to `end` as the 1st, or any power of what is left;
/// - one-cycle: half a cosine from a 25th of `peak` up to it in 30 % of the steps, another one down
///   to `end`, which the last step has (Smith and Topin, https://arxiv.org/abs/1708.07120; the
///   rates of PyTorch's OneCycleLR with cycle_momentum=False, whose min_lr is `end`).
double learning_rate(double peak,
                     const ScheduleSettings& schedule,
                     std::int64_t step,
                     const RunLength& length);

/// Returns the length of a run over `samples`, whose V is known.
RunLength length_of(const TrainSettings& settings, std::int64_t samples);

/// Returns the steps of `period`; 0 if it is not of epochs or steps.
std::int64_t steps_of(const Period& period, const RunLength& length);

/// Returns the last step up to `done` with a checkpoint due after it, by steps or epochs; 0: none.
std::int64_t rollback_step(const TrainSettings& settings,
                           const RunLength& length,
                           std::int64_t done);

/// Returns the number of samples that an epoch leaves out with --drop-last.
std::uint32_t dropped_samples(const TrainSettings& settings, std::uint64_t samples);

/// Returns E217 if some step computes a single sample by itself, for models that cannot.
std::optional<Error> single_rows(const TrainSettings& settings,
                                 std::int64_t samples,
                                 const RunLength& length);

/// Properties of a model that decide the number of leaves of its steps.
struct ModelTraits {
    std::int64_t parameters = 0;
    /// Multiplications of matrix products and convolutions in one sample's forward pass; 0:
    /// unknown.
    std::uint64_t products = 0;
    bool looks_across_samples = false;  ///< samples depend on each other: batch norm, mixup
};

/// Returns V if the user did not set it: as many as cost little if leaves are computed together,
/// else as few as `ranks` need. Up to that number V does not depend on `ranks`, and never on the
/// speed of a machine: the same command has the same V, and so the same bits, everywhere.
int default_virtual_ranks(const TrainSettings& settings,
                          std::int64_t samples,
                          const ModelTraits& model,
                          int ranks);

/// Returns the seconds between saves of `cost_s` each that lose the least time if failures are
/// `mtbf_s` apart: sqrt(2 cost mtbf) (Young, https://doi.org/10.1145/361147.361115). Returns more
/// where saves would cost more than the share `overhead` of the time.
double save_interval_s(double cost_s, double mtbf_s, double overhead);

/// What saves beside the steps cost: the time that they are known to take, or what the steps beside
/// them take longer, if that is more. Medians are compared, for other things make single steps
/// long. A start's first steps do not count. What the scatter of the steps may hide counts, too, so
/// that the first saves seem rather too dear: two standard errors, by medians.
class SaveCost {
  public:
    /// Must be called for every step; `is_beside`: a save was in flight. Returns true if the cost
    /// of the last save is known with it: some steps after its end, or with the first of the next
    /// one.
    bool add_step(double wall_s, bool is_beside);

    /// Notes the end of a save, which held up the training for `held_s` and worked for `busy_s`
    /// beside it.
    void add_save(double held_s, double busy_s);

    /// Returns the mean of all saves whose cost is known, in seconds.
    double mean_s() const;

    /// Returns the median step without a save, in seconds; 0: none is known.
    double usual_step_s() const;

    /// Returns the number of steps that the next save should be written beside, so that each shows
    /// little of it: at least 1, and at most half of `steps_to_next`, if that is more than 0.
    /// `guess_s` is the cost of a first save.
    std::int64_t spread(double guess_s, double steps_to_next) const;

  private:
    void settle();

    std::vector<double> beside_s_, calm_s_;  ///< the latter: the last steps without a save
    std::size_t steps_ = 0, calm_ = 0, calm_since_ = 0;  ///< the last: since the save's end
    std::optional<std::pair<double, double>> ended_;     ///< held and busy of the save to be told
    double known_s_ = 0, shown_s_ = 0;                   ///< of all saves
    double variance_s2_ = 0;                             ///< of shown_s_
    int saves_ = 0;
};

/// Decides when a run must save and stop before its deadline. Two of the longest recent turns of
/// the loop, two of the longest saves and a margin must still fit. The margin is 90 s, but at most
/// a tenth of the time left at the start. Times are those of now_s(): setting the wall clock cannot
/// move the limit.
class TimeLimit {
  public:
    /// `deadline_unix_s` 0: no limit. `unix_now_s` and `now_s` are the same moment.
    TimeLimit(std::int64_t deadline_unix_s, double unix_now_s, double now_s);

    /// Must be called at the begin of every turn.
    void begin_turn(double now_s);

    /// Notes the duration of a checkpoint.
    void note_save(double seconds);

    /// Returns true if there may be too little time for another turn.
    bool is_near(double now_s) const;

  private:
    double deadline_s_, margin_s_;
    std::array<double, 64> turns_s_{};
    std::size_t turns_ = 0;
    double turn_began_s_ = 0, longest_save_s_ = 0;
};

}  // namespace lockstep
