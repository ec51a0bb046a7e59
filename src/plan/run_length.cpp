// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Returns true if a leaf of `rows`, in near-equal micro-batches, has one of a single row.
bool has_single_row(std::int64_t rows, const TrainSettings& settings) {
    return rows > 0 && rows / std::min<std::int64_t>(rows, settings.micro_batches) == 1;
}

// Returns the same for a step of `samples`, whose leaves are near-equal.
bool step_has_single_row(std::int64_t samples, const TrainSettings& settings) {
    const std::int64_t least = samples / settings.virtual_ranks;
    const std::int64_t most = least + (samples % settings.virtual_ranks > 0 ? 1 : 0);
    return has_single_row(least, settings) || has_single_row(most, settings);
}

std::string parts_text(const TrainSettings& settings) {
    return fmt::format("{} virtual ranks{}",
                       settings.virtual_ranks,
                       settings.micro_batches > 1
                           ? fmt::format(" in {} micro-batches each", settings.micro_batches)
                           : "");
}

Error single_row(const std::string& step, const TrainSettings& settings, const std::string& fix) {
    return {"E217",
            "batch norm has no statistics of a single sample",
            fmt::format("{}, for {}: some compute one by itself", step, parts_text(settings)),
            fix};
}

}  // namespace

RunLength length_of(const TrainSettings& settings, std::int64_t samples) {
    const std::int64_t rounding = settings.drops_last ? 0 : settings.batch - 1;
    const std::int64_t epoch = (samples + rounding) / settings.batch;
    return {.steps_per_epoch = epoch,
            .total_steps = settings.max_steps > 0 ? settings.max_steps : settings.epochs * epoch};
}

std::int64_t rollback_step(const TrainSettings& settings,
                           const RunLength& length,
                           std::int64_t done) {
    const Period& every = settings.checkpoint_every;
    const std::int64_t steps =
        every.unit == Period::Unit::epochs ? every.count * length.steps_per_epoch : every.count;
    return done / steps * steps;
}

std::uint32_t dropped_samples(const TrainSettings& settings, std::uint64_t samples) {
    const auto batch = static_cast<std::uint64_t>(settings.batch);
    return settings.drops_last ? static_cast<std::uint32_t>(samples % batch) : 0;
}

std::optional<Error> single_rows(const TrainSettings& settings,
                                 std::int64_t samples,
                                 const RunLength& length) {
    if (step_has_single_row(std::min(settings.batch, samples), settings))
        return single_row(
            fmt::format("each step has {} samples", std::min(settings.batch, samples)),
            settings,
            settings.micro_batches > 1
                ? "use a larger --batch, fewer --virtual-ranks or --micro-batches"
                : "use a larger --batch, or fewer --virtual-ranks");
    const std::int64_t rest = samples % settings.batch;
    const bool is_reached = length.total_steps >= length.steps_per_epoch;
    if (settings.drops_last || !is_reached || !step_has_single_row(rest, settings)) return {};
    return single_row(fmt::format("the last step of an epoch has {} of {} samples", rest, samples),
                      settings,
                      "leave that step out with --drop-last, or use another --batch");
}

}  // namespace lockstep
