// SPDX-License-Identifier: Apache-2.0
// A replica that has all leaves, for tests without other ranks.
#pragma once

#include "replica/replica.hpp"

#include <memory>
#include <utility>

namespace lockstep::test {

/// The parts of a replica of `module` on this process's CPU. Borrows `plan`, which is of one rank.
inline Replica::Parts parts_of(const std::shared_ptr<Classifier>& module,
                               const TreePlan& plan,
                               const OptimizerSettings& optimizer = {}) {
    auto model = model_of(module);
    auto layout = std::make_unique<const ModelLayout>(*model);
    auto exchange = make_exchange(Communicator(), layout->flat(), plan);
    return {.model = std::move(model),
            .layout = std::move(layout),
            .plan = plan,
            .exchange = std::move(exchange),
            .optimizer = optimizer,
            .ranks = {},
            .progress = {}};
}

}  // namespace lockstep::test
