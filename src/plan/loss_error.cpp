// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/losses.hpp"

#include <fmt/format.h>

namespace lockstep {

Error loss_error(double loss, std::int64_t step, const TrainSettings& settings) {
    const bool is_first = step <= 1;
    std::string why = is_first
                          ? "no weight has changed yet, and the samples are finite: an initial "
                            "weight is not, or numbers overflow in the model or the loss"
                          : "the weights have diverged";
    std::string fix =
        is_first
            ? "scale inputs and targets to numbers around 1, and check the model's initial weights"
            : "lower --lr, use --warmup-steps, or check the data; the last checkpoint is good";
    if (settings.precision == Precision::fp16) {
        why += ", or a number is beyond fp16's 65,504";
        fix += "; --precision bf16 has the range of fp32";
    }
    if (settings.threads > 1) {
        why += fmt::format(", or an operation went wrong on {} threads", settings.threads);
        fix += "; if --threads 1 works, check OMP_* variables";
    }
    return {"E701", fmt::format("the loss is {} at step {}", loss, step), why, fix};
}

Error no_rollback_error(std::int64_t step, std::int64_t wanted) {
    return {"E701",
            fmt::format("step {} is not finite, and cannot be rolled back", step),
            wanted == 0 ? "no checkpoint was due before it"
                        : fmt::format("the checkpoint of step {} is gone or damaged", wanted),
            "check the data, or begin a new run with a lower --lr or a shorter --checkpoint-every"};
}

Error scale_error(double factor, std::int64_t step) {
    return {"E701",
            fmt::format("the loss scale has fallen to {:.3g} at step {}", factor, step),
            "gradients are not finite in fp16 whatever the scale: the weights have diverged, or "
            "some samples give no finite gradient",
            "lower --lr, use --warmup-steps, check the data, or use --precision bf16 in a new run; "
            "the last checkpoint is good"};
}

Error skipped_error(int steps, std::int64_t step) {
    return {"E701",
            fmt::format("{} steps in a row were skipped, the last is step {}", steps, step),
            "no loss or gradient of them is finite: the weights have diverged, or samples are not "
            "finite",
            "lower --lr, use --warmup-steps or --clip-norm, or check the data; the last checkpoint "
            "is good"};
}

}  // namespace lockstep
