// SPDX-License-Identifier: Apache-2.0
// What it costs a step to know where it went: bench_budget FOLDER [--short]. Phases are entered as
// a step of two leaves does, hooks look at the clock for each of four buckets, and the step is
// kept; nothing else is done, so that the loop's time is the cost. The last line is JSON. The short
// form looks only whether phases sum to the wall time and steps are kept.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/job_summary.hpp"
#include "lockstep/run/step_budget.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace lockstep;

constexpr int leaves = 2, buckets = 4;
constexpr double goal = 0.005, step_s = 1e-3;

void compute_leaf(PhaseClock& clock) {
    { const PhaseScope data(clock, Phase::data); }
    { const PhaseScope forward(clock, Phase::forward); }
    const PhaseScope backward(clock, Phase::backward);
}

// As TrainStep::run() and the loop around it.
void run_step(PhaseClock& clock, std::atomic<double>& sums_s) {
    { const PhaseScope data(clock, Phase::data); }
    {
        const PhaseScope backward(clock, Phase::backward);
        for (int leaf = 0; leaf < leaves; ++leaf) compute_leaf(clock);
        for (int bucket = 0; bucket < buckets; ++bucket) {
            const double begin_s = now_s();
            sums_s.store(now_s() - begin_s, std::memory_order_relaxed);
        }
    }
    clock.reassign(Phase::backward, Phase::comm, sums_s);
    for (const Phase phase : {Phase::data, Phase::comm, Phase::update, Phase::comm})
        const PhaseScope scope(clock, phase);
    clock.reassign(Phase::comm, Phase::wait, 0);
}

struct Turn {
    double cost_s = 0;     ///< of a step
    double error = 0;      ///< of the phases' sum, outside what looks at the clock around it allow
    std::size_t kept = 0;  ///< steps in the file
};

Turn run_turn(const std::filesystem::path& path, std::int64_t steps) {
    std::atomic<std::uint64_t> word = 0;
    std::atomic<double> sums_s = 0;
    PhaseSeconds all{};
    PhaseClock clock;
    clock.mirror_to(&word);
    StepBudgetFile file(path);
    StepStretches stretches;
    const double before_s = now_s();
    clock.take();
    const double begin_s = now_s();
    for (std::int64_t step = 1; step <= steps; ++step) {
        run_step(clock, sums_s);
        const PhaseSeconds taken = clock.take();
        all += taken;
        const StepBudget budget{step, unix_time_s(), taken};
        file.add(budget);
        stretches.add(budget);
    }
    const double wall_s = now_s() - begin_s;
    all += clock.take();
    const double most_s = now_s() - before_s;
    const double sum_s = all.sum();
    file.flush();
    return {wall_s / static_cast<double>(steps),
            std::max({0.0, wall_s - sum_s, sum_s - most_s}) / wall_s,
            read_step_budgets(path).size()};
}

}  // namespace

int main(int count, char** words) {
    if (count < 2) {
        std::cerr << "usage: bench_budget FOLDER [--short]\n";
        return 64;
    }
    const bool is_short = count > 2 && std::string_view(words[2]) == "--short";
    const std::filesystem::path path = std::filesystem::path(words[1]) / "bench-budget.steps";
    const std::int64_t steps = is_short ? 2'000 : 50'000;
    std::vector<Turn> turns;
    for (int turn = 0; turn < (is_short ? 2 : 9); ++turn) turns.push_back(run_turn(path, steps));
    std::filesystem::remove(path);
    std::ranges::sort(turns, {}, &Turn::cost_s);
    const Turn& median = turns[turns.size() / 2];
    const double error = std::ranges::max(turns, {}, &Turn::error).error;
    const auto kept = static_cast<std::size_t>(
        std::min<std::int64_t>(steps, static_cast<std::int64_t>(StepBudgetFile::most_steps)));
    const double share = median.cost_s / step_s;
    const bool is_whole = error < 0.01 && median.kept == kept;
    fmt::print(
        "{:.2f} us a step of {} leaves and {} buckets, {:.2f} % of a step of 1 ms; phases sum "
        "to the wall time but for {:.3f} %\n",
        1e6 * median.cost_s,
        leaves,
        buckets,
        100 * share,
        100 * error);
    const Json cost = {{"value", share}, {"goal", goal}, {"ok", share <= goal}};
    const Json sum = {{"value", error}, {"goal", 0.01}, {"ok", error < 0.01}};
    const Json line = {{"bench", "budget"},
                       {"cost_us", 1e6 * median.cost_s},
                       {"best_us", 1e6 * turns.front().cost_s},
                       {"steps", steps},
                       {"bars", {{"cost by a step of 1 ms", cost}, {"phases by wall time", sum}}}};
    std::cout << line.dump() << "\n";
    return is_whole && (is_short || share <= goal) ? 0 : 1;
}
