// SPDX-License-Identifier: Apache-2.0
// For tests that run on several ranks: the ranks, and random numbers that all of them share.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <gtest/gtest.h>

namespace lockstep::test {

/// All ranks of this test program; its message space is the tests' own.
const Communicator& ranks();

}  // namespace lockstep::test

/// Skips the test, on all ranks alike, if there are fewer than `count`.
#define LOCKSTEP_NEEDS_RANKS(count) \
    if (::lockstep::test::ranks().size() < (count)) GTEST_SKIP() << "needs " << (count) << " ranks"
