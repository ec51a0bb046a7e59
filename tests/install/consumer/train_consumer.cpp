// SPDX-License-Identifier: Apache-2.0
// Builds a registered model and runs it once, with the LibTorch that the consumer's configure
// found.
#include "lockstep/train/model.hpp"

#include <iostream>

#include <torch/types.h>

int main() {
    const auto model = lockstep::make_model({}, {}, 1);
    const auto logits = model->forward(torch::zeros({2, 1, 28, 28}));
    std::cout << "train_consumer: logits of shape " << logits.sizes() << '\n';
    return logits.size(0) == 2 && logits.size(1) == 10 ? 0 : 1;
}
