// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/core/clock.hpp"

#include <chrono>
#include <thread>

namespace lockstep::test {

/// Polls until `condition` holds. Returns false after `timeout_s`.
template <class Condition>
bool eventually(Condition&& condition, double timeout_s = 120) {
    const double deadline = now_s() + timeout_s;
    while (!condition()) {
        if (now_s() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

}  // namespace lockstep::test
