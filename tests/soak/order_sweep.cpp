// SPDX-License-Identifier: Apache-2.0
// Every sample once an epoch, in the same order on any number of ranks: order_sweep [--short].
// Prints one line for each number of samples and a last line of JSON; exits 1 if a sample is
// missing, doubled or out of order.
#include "order_sweep.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"

#include <iostream>
#include <string_view>

#include <fmt/format.h>

namespace {

using namespace lockstep;
using namespace lockstep::test;

Json bar(std::uint64_t value) {
    return {{"value", value}, {"goal", 0}, {"ok", value == 0}};
}

}  // namespace

int main(int count, char** words) {
    const bool is_short = count > 1 && std::string_view(words[1]) == "--short";
    const SweepSize size = is_short ? SweepSize::small : SweepSize::full;
    const double since = now_s();
    SweepResult all;
    for (const std::uint64_t samples : {1u, 7u, 50'000u, 60'000u, 65'537u, 262'145u, 1'281'167u}) {
        const SweepResult result = sweep_samples(samples, size);
        std::cout
            << fmt::format(
                   "{:>9} samples: {} cases, {} missing, {} duplicate, {} different ({:.1f} s)\n",
                   samples,
                   result.cases,
                   result.missing,
                   result.duplicate,
                   result.different,
                   now_s() - since)
            << std::flush;
        all += result;
    }
    std::cout << Json({{"bench", "order"},
                       {"cases", all.cases},
                       {"resumes", all.resumes},
                       {"samples_visited", all.samples},
                       {"seconds", now_s() - since},
                       {"bars",
                        {{"missing", bar(all.missing)},
                         {"duplicate", bar(all.duplicate)},
                         {"different_sequences", bar(all.different)}}}})
              << "\n";
    return all.missing + all.duplicate + all.different == 0 ? 0 : 1;
}
