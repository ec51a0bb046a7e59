// SPDX-License-Identifier: Apache-2.0
// What `data pack` and `data synth` write, and how; the ranks as data's functions know them, and
// how a signal ends their work in order.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/team.hpp"

#include "option_groups.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

struct PackArguments {
    PackOptions pack;
    std::uint64_t shuffle_seed = 0;
    bool keep_order = false, restart = false;

    PackArguments() { pack.threads = 0; }
};

/// What is written, how, and by whom. `seed_name` is what the seed of the shuffling is called.
OptionTable pack_output_table(PackArguments& arguments, const std::string& seed_name);

/// Checks the output. Errors: E105 if --out is missing, E407 if it exists. Opening an input can
/// take long: call this before.
void check_output_given(const PackArguments& arguments);

/// Collective. Packs on all `ranks`, shows progress, and reports the result. Errors: also E242 if a
/// signal ends it.
void pack_rows(const RowSource& source,
               PackArguments& arguments,
               const Communicator& ranks,
               Progress& progress);

/// Shows how far packing is, for as long as `progress` lives. Throws as stop_if_asked(`doing`).
std::function<void(const PackProgress&)> pack_report(const std::string& doing, Progress& progress);

/// Prints what was written: `done` is "packed".
void say_packed(const std::string& done, const PackResult& result);

/// All of `ranks`, which must outlive the result.
Team team_of(const Communicator& ranks);

/// Throws Error E242 if a signal asked this process to end; `doing` is "packing". For progress
/// callbacks while a SignalGuard is there.
void stop_if_asked(const std::string& doing);

}  // namespace lockstep
