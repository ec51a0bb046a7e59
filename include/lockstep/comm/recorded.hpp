// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parts of flight records that need MPI: recorded collectives, and the watch over nodes.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/watchdog.hpp"

#include <functional>
#include <memory>
#include <string_view>

namespace lockstep {

/// Returns an exchange that records its collectives as one channel of `recorder`, which must
/// outlive it. All else is as in the wrapped exchange. All ranks make the same ones in the same
/// order.
std::unique_ptr<Exchange> recorded(std::unique_ptr<Exchange> exchange,
                                   const FlatLayout& layout,
                                   FlightRecorder& recorder,
                                   std::string_view channel = "gradients");

/// Collective. Makes a watch over the nodes of `ranks` in the folder that `make_folder` creates on
/// rank 0. Returns nothing if there is only one node, if `make_folder` returns "", or if a node
/// cannot write there.
std::unique_ptr<NodeWatch> watch_nodes(const Communicator& ranks,
                                       const std::function<fs::path()>& make_folder,
                                       NodeWatchSettings settings);

}  // namespace lockstep
