// SPDX-License-Identifier: Apache-2.0
// The output options of `data pack` and `data synth`.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack.hpp"

#include "option_groups.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

struct PackArguments {
    PackOptions pack;
    std::uint64_t shuffle_seed = 0;
    bool keep_order = false, restart = false;

    PackArguments() { pack.threads = 0; }
};

/// `seed_name` is the name of the shuffling seed's option.
OptionSection pack_output_section(PackArguments& arguments, const std::string& seed_name);

/// Returns the options for threads, and for the remains of an unfinished pack.
OptionSection pack_how_section(PackArguments& arguments);

/// Checks the output. Errors: E105 if --out is missing, E407 if it exists. Opening an input can
/// take long: call this before.
void check_output_given(const PackArguments& arguments);

/// Collective. Packs on all `ranks`, shows progress, and reports the result. Errors: also E242 if a
/// signal ends it.
void pack_rows(const RowSource& source,
               PackArguments& arguments,
               const Communicator& ranks,
               Progress& progress);

}  // namespace lockstep
