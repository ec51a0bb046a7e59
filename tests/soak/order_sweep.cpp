// SPDX-License-Identifier: Apache-2.0
// Every sample once an epoch, in the same order on any number of ranks, and how well the default
// order mixes samples that are stored sorted by class: order_sweep [--short|--mixing]. --mixing
// leaves the first part out. Prints a line for each case and a last line of JSON; exits 1 if a
// sample is missing, doubled or out of order, or a batch is mixed worse than its bar says.
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

SweepResult sweep_all(SweepSize size) {
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
    return all;
}

// The bar is for data sets as 'data pack' makes them of 60,000 images of 784 bytes; larger batches
// and smaller blocks are there to be seen.
struct MixingCase {
    SortedSamples sorted;
    bool has_bar = false;
};

std::vector<MixingCase> mixing_cases() {
    std::vector<MixingCase> cases;
    for (const std::uint64_t batch : {128u, 256u, 1024u})
        for (const std::uint64_t classes : {2u, 10u, 100u, 1000u})
            cases.push_back({{.classes = classes, .batch = batch}, batch <= 256});
    for (const std::uint64_t batch : {256u, 1024u}) cases.push_back({{1'281'167, 1000, 64, batch}});
    return cases;
}

Json mixing_bars() {
    constexpr double goal = 1.2;
    constexpr std::uint64_t epochs = 6;
    Json bars = Json::object();
    std::cout << "sorted by class, order 'lanes': mean chi-square of a batch over its degrees of "
                 "freedom\n";
    for (const auto& [sorted, has_bar] : mixing_cases()) {
        const double ratio = mean_chi_square(sorted, {}, epochs);
        std::cout << fmt::format(
                         "{:>9} samples, {:>4} classes, blocks of {}, batch {:>4}: {:.2f}\n",
                         sorted.samples,
                         sorted.classes,
                         sorted.block_rows,
                         sorted.batch,
                         ratio)
                  << std::flush;
        if (has_bar)
            bars[fmt::format("chi_square_{}_classes_batch_{}", sorted.classes, sorted.batch)] = {
                {"value", ratio}, {"goal", goal}, {"ok", ratio <= goal}};
    }
    return bars;
}

}  // namespace

int main(int count, char** words) {
    const std::string_view option = count > 1 ? words[1] : "";
    const double since = now_s();
    Json bars = Json::object();
    SweepResult all;
    if (option != "--mixing") {
        all = sweep_all(option == "--short" ? SweepSize::small : SweepSize::full);
        bars = {{"missing", bar(all.missing)},
                {"duplicate", bar(all.duplicate)},
                {"different_sequences", bar(all.different)}};
    }
    bars.update(mixing_bars());
    const bool is_ok = std::ranges::all_of(
        bars.items(), [](const JsonMember& bar) { return bar.value["ok"] == true; });
    std::cout << Json({{"bench", "order"},
                       {"cases", all.cases},
                       {"resumes", all.resumes},
                       {"samples_visited", all.samples},
                       {"seconds", now_s() - since},
                       {"bars", std::move(bars)}})
              << "\n";
    return is_ok ? 0 : 1;
}
