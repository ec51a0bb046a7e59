// SPDX-License-Identifier: Apache-2.0
/// @file
/// A decorator that notes every collective in a rank's flight recorder.
#pragma once

#include "lockstep/comm/exchange.hpp"
#include "lockstep/run/flight_recorder.hpp"

#include <memory>
#include <string_view>

namespace lockstep {

/// What goes through it is recorded as one channel of `recorder`, which outlives them. Everything
/// else is as in what it wraps. The same ones in the same order on every rank.
std::unique_ptr<Exchange> recorded(std::unique_ptr<Exchange> exchange,
                                   const FlatLayout& layout,
                                   FlightRecorder& recorder,
                                   std::string_view channel = "gradients");

}  // namespace lockstep
