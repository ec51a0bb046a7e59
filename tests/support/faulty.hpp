// SPDX-License-Identifier: Apache-2.0
// A decorator that misbehaves on purpose: one rank's faults, and links that are slow for all.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include <cstdint>
#include <limits>
#include <memory>

namespace lockstep::test {

enum class Fault {
    none,
    delay,    ///< `delay_s` later
    hang,     ///< never comes back
    stop,     ///< SIGSTOP
    kill,     ///< SIGKILL
    exit,     ///< _exit(0)
    corrupt,  ///< one bit of its part is another
};

/// What goes wrong, once, in the arrive() with number `at_call` (from 0). A link of `bytes_per_s`
/// (0: no limit) carries one buffer after another.
struct Faults {
    Fault fault = Fault::none;
    std::uint64_t at_call = std::numeric_limits<std::uint64_t>::max();
    double delay_s = 0;
    double bytes_per_s = 0;
};

/// A bucket is on the link from arrive() on: reduce() with Wait::no gives nullptr, and with
/// Wait::yes sleeps, until it is through.
std::unique_ptr<Exchange> faulty(std::unique_ptr<Exchange> exchange,
                                 const FlatLayout& layout,
                                 const Faults& faults);

}  // namespace lockstep::test
