// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a run is, its learning rate at each step, its virtual ranks, and when its time is up.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/plan/settings.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// How long a run is.
struct RunLength {
    std::int64_t steps_per_epoch = 0;  ///< at least 1
    std::int64_t total_steps = 0;      ///< of all epochs
};

/// The rate that a run reaches: the given one, times batch by reference batch (Goyal et al.,
/// https://arxiv.org/abs/1706.02677) or its root (Krizhevsky, https://arxiv.org/abs/1404.5997).
double peak_rate(const TrainSettings& settings);

/// For people: what became of the rate and of the number of updates; "" without a scale.
std::string scale_text(const TrainSettings& settings, const RunLength& length);

/// The learning rate of `step` (from 0) of a run that reaches `peak`. First it grows linearly for
/// the steps of the warm-up, to what the schedule begins with. Then, over the steps that are left:
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

/// Of a run over `samples`, whose V is settled.
RunLength length_of(const TrainSettings& settings, std::int64_t samples);

/// After `done` steps: the last one after which a checkpoint was due, by steps or epochs; 0: none.
std::int64_t rollback_step(const TrainSettings& settings,
                           const RunLength& length,
                           std::int64_t done);

/// Samples that an epoch leaves out with --drop-last.
std::uint32_t dropped_samples(const TrainSettings& settings, std::uint64_t samples);

/// E217 where some step computes a single sample by itself, for models that cannot.
std::optional<Error> single_rows(const TrainSettings& settings,
                                 std::int64_t samples,
                                 const RunLength& length);

/// Facts of a model that decide into how many leaves its steps are cut.
struct ModelTraits {
    std::int64_t parameters = 0;
    /// Multiplications of products and convolutions in one sample's forward pass; 0: not known.
    std::uint64_t products = 0;
    bool looks_across_samples = false;  ///< of a leaf, as batch norm and mixup do
};

/// V where nobody said it: as many as cost little where leaves are computed together, or as few as
/// `ranks` need. Up to it V does not depend on them, nor ever on how fast a machine is: the same
/// command has the same V, and so the same bits, everywhere.
int default_virtual_ranks(const TrainSettings& settings,
                          std::int64_t samples,
                          const ModelTraits& model,
                          int ranks);

/// The rule: two of the longest recent turns of the loop, two of the longest saves, and a margin
/// of 90 s, at most a tenth of what was left at the start, still fit. Times are those of now_s():
/// a wall clock that is set cannot move the limit.
class TimeLimit {
  public:
    /// `deadline_unix_s` 0: no limit. `unix_now_s` and `now_s` are the same moment.
    TimeLimit(std::int64_t deadline_unix_s, double unix_now_s, double now_s);

    /// To be called at the begin of every turn.
    void begin_turn(double now_s);

    /// A checkpoint took so long.
    void note_save(double seconds);

    /// Whether another turn might be one too many.
    bool is_near(double now_s) const;

  private:
    double deadline_s_;
    double margin_s_;
    std::array<double, 64> turns_s_{};
    std::size_t turns_ = 0;
    double turn_began_s_ = 0;
    double longest_save_s_ = 0;
};

}  // namespace lockstep
