// SPDX-License-Identifier: Apache-2.0
// Which settings `lockstep tune` tries, and which values of them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// Options of `train` with the values that a training has instead of the user's.
using Variant = std::map<std::string, std::string>;

/// Whether another value of a setting gives a run other bits.
enum class KnobEffect { speed_only, decides_bits };

/// A setting, and what is tried: the first is what the user has now.
struct Knob {
    std::string name{};
    KnobEffect effect = KnobEffect::speed_only;
    std::vector<Variant> variants{};
};

/// What choices depend on.
struct KnobFacts {
    int cores = 1;                  ///< that this process may use
    int np = 1;                     ///< ranks now
    int threads = 1;                ///< of each rank now
    int virtual_ranks = 1;          ///< no more ranks than these
    std::set<std::string> given{};  ///< options that the user has set: they stay
};

/// All names, in the order in which they are tried.
std::vector<std::string> knob_names();

/// The knob of that name as things stand, `current` being chosen already; fewer than two variants:
/// there is nothing to try.
Knob knob_of(const std::string& name, const KnobFacts& facts, const Variant& current);

/// "--np 2 --transport mpi".
std::string settings_text(const Variant& variant);

/// The value that the variant has for the knob, or all of it; of threads "2 in each of 1 rank(s)".
std::string variant_text(const Knob& knob, const Variant& variant);

}  // namespace lockstep
