// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/settings.hpp"

#include "lockstep/train/train.hpp"

#include <torch/version.h>

namespace lockstep {

nlohmann::ordered_json deciding_settings(const TrainSettings& settings,
                                         const std::string& data_digest) {
    nlohmann::ordered_json deciding = {{"data-digest", data_digest},
                                       {"model", settings.model.name},
                                       {"no-bias", !settings.model.bias},
                                       {"optimizer", settings.optimizer.name},
                                       {"lr", settings.optimizer.learning_rate},
                                       {"momentum", settings.optimizer.momentum},
                                       {"beta1", settings.optimizer.beta1},
                                       {"beta2", settings.optimizer.beta2},
                                       {"epsilon", settings.optimizer.epsilon},
                                       {"weight-decay", settings.optimizer.weight_decay},
                                       {"schedule", settings.schedule.name},
                                       {"warmup-steps", settings.schedule.warmup_steps},
                                       {"batch", settings.batch},
                                       {"seed", settings.seed},
                                       {"virtual-ranks", settings.virtual_ranks},
                                       {"threads", settings.threads},
                                       {"isa", settings.instruction_set},
                                       {"order", settings.order},
                                       {"transform", settings.transform},
                                       {"lanes", settings.lanes},
                                       {"window-blocks", settings.window_blocks},
                                       {"plain", settings.plain_summation},
                                       {"micro-batches", settings.micro_batches},
                                       {"wire", settings.wire},
                                       {"powersgd-rank", settings.powersgd_rank},
                                       {"clip-norm", settings.clip_norm},
                                       {"libtorch", TORCH_VERSION}};
    if (settings.schedule.name == "cosine") {
        deciding["epochs"] = settings.epochs;
        deciding["max-steps"] = settings.max_steps;
    }
    return deciding;
}

std::string torch_version_text() {
    return TORCH_VERSION;
}

}  // namespace lockstep
