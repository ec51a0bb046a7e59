// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the flight records of a job need of MPI: collectives that are noted, and the watch over
/// nodes.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/watchdog.hpp"

#include <functional>
#include <memory>
#include <string_view>

namespace lockstep {

/// What goes through it is recorded as one channel of `recorder`, which outlives them. Everything
/// else is as in what it wraps. The same ones in the same order on every rank.
std::unique_ptr<Exchange> recorded(std::unique_ptr<Exchange> exchange,
                                   const FlatLayout& layout,
                                   FlightRecorder& recorder,
                                   std::string_view channel = "gradients");

/// Collective. A watch over the nodes of `ranks` in the folder that `make_folder` makes on rank 0;
/// nothing if there is one node only, if it gives "", or if a node cannot write there.
std::unique_ptr<NodeWatch> watch_nodes(const Communicator& ranks,
                                       const std::function<fs::path()>& make_folder,
                                       NodeWatchSettings settings);

}  // namespace lockstep
