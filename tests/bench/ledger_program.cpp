// SPDX-License-Identifier: Apache-2.0
// What a rank pays for its ledger: records of 64 shuffled samples a step, written and flushed as in
// training, in microseconds a step: bench_ledger FOLDER [--short]. The last line is JSON.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/ledger.hpp"
#include "lockstep/data/order.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace {

using namespace lockstep;

constexpr std::uint64_t samples = 60'000, batch = 128, rows = batch / 2;  // on each of two ranks
constexpr std::uint64_t steps_of_checkpoint = 500;

// One rank's samples of one epoch.
std::vector<std::uint64_t> shuffled(std::uint64_t epoch) {
    const EpochOrder order(row_blocks(samples, 256), {OrderKind::uniform, epoch}, epoch);
    std::vector<std::uint64_t> ids;
    while (ids.size() < samples) {
        const auto window = order.samples_of(order.window_at(0, ids.size()));
        ids.insert(ids.end(), window.begin(), window.end());
    }
    return ids;
}

struct Cost {
    double add_s = 0, flush_s = 0;
    std::uint64_t steps = 0;
};

Cost write_epochs(LedgerWriter& ledger, std::uint64_t epochs) {
    Cost cost;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
        const auto ids = shuffled(epoch);
        for (std::uint64_t at = 0; at + batch <= samples; at += batch) {
            Batch one;
            one.position = {epoch, at};
            one.samples_in_step = batch;
            one.sample_ids = std::span(ids).subspan(at, rows);
            const double since = now_s();
            ledger.add(one);
            cost.add_s += now_s() - since;
            if (++cost.steps % steps_of_checkpoint != 0) continue;
            const double flushing = now_s();
            ledger.flush();
            cost.flush_s += now_s() - flushing;
        }
    }
    return cost;
}

}  // namespace

int main(int count, char** words) {
    if (count < 2) {
        std::cerr << "usage: bench_ledger FOLDER [--short]\n";
        return 64;
    }
    const std::filesystem::path folder = std::filesystem::path(words[1]) / "bench-ledger";
    const bool is_short = count > 2 && std::string_view(words[2]) == "--short";
    const LedgerHead head{
        .samples = samples, .data_digest = std::string(32, '0'), .rank = 0, .ranks = 2};
    Cost cost;
    {
        LedgerWriter ledger(folder, head);
        cost = write_epochs(ledger, is_short ? 2 : 50);
        ledger.flush();
    }
    const double bytes = static_cast<double>(std::filesystem::file_size(ledger_path(folder, head)));
    std::filesystem::remove_all(folder);
    const double steps = static_cast<double>(cost.steps);
    const double add_us = 1e6 * cost.add_s / steps;
    const std::uint64_t flushes = std::max<std::uint64_t>(cost.steps / steps_of_checkpoint, 1);
    const double flush_us = 1e6 * cost.flush_s / static_cast<double>(flushes);
    std::cout << fmt::format(
        "{} steps: {:.2f} us a step, {:.0f} us a flush, {:.2f} bytes a sample\n",
        cost.steps,
        add_us,
        flush_us,
        bytes / (steps * rows));
    std::cout << Json({{"bench", "ledger"},
                       {"add_us", add_us},
                       {"flush_us", flush_us},
                       {"us_a_step", 1e6 * (cost.add_s + cost.flush_s) / steps},
                       {"bytes_a_sample", bytes / (steps * rows)}})
              << "\n";
    return 0;
}
