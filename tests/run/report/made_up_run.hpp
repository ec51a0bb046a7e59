// SPDX-License-Identifier: Apache-2.0
// Figures of a run that never was, for tests of its report.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/run/report.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace lockstep::test {

/// A step of 10 ms: forward 3, backward 6, update 1.
inline StepBudget made_up_step(std::int64_t step) {
    StepBudget budget{.step = step, .ended_unix_s = static_cast<double>(step)};
    budget.phases[Phase::forward] = 0.003;
    budget.phases[Phase::backward] = 0.006;
    budget.phases[Phase::update] = 0.001;
    return budget;
}

/// `ranks` ranks of equal speed, two a node, that did `steps` steps and reported each.
inline RunFigures made_up_figures(int ranks, std::int64_t steps) {
    RunFigures run{.root = "runs/a", .incarnation = 1};
    run.record.contract = {{"virtual_ranks", 4}};
    run.record.deciding = {{"model", "mlp"}, {"batch", 24}, {"lr", 0.001}};
    run.record.config = {{"data", {{"value", "D/train"}, {"origin", "command line"}}}};
    for (int rank = 0; rank < ranks; ++rank) {
        RankFigures figures{.facts = {.rank = rank, .host = fmt::format("n{}", rank / 2)}};
        for (std::int64_t step = 1; step <= steps; ++step)
            figures.steps.push_back(made_up_step(step));
        run.ranks.push_back(std::move(figures));
    }
    for (std::int64_t step = 1; step <= steps; ++step) {
        StepsEvent event{.report = {.step = step,
                                    .loss = 1 / static_cast<double>(step),
                                    .lr = 0.001,
                                    .samples_per_s = 2400}};
        run.reports.push_back(event);
    }
    return run;
}

/// A run that did all of its `steps` in 100 s, every second of them a step's.
inline ReportClues made_up_clues(std::int64_t steps) {
    ReportClues clues{.start = 1, .next = "lockstep status runs/a"};
    clues.status.root = "runs/a";
    clues.status.condition = RunCondition::complete;
    clues.status.incarnation = 1;
    clues.status.step = clues.status.steps_total = steps;
    clues.status.times = {.elapsed = 100, .training = 100};
    clues.status.starts = {{.incarnation = 1,
                            .began_unix_s = 1.7e9,
                            .ended_unix_s = 1.7e9 + 100,
                            .from_step = 0,
                            .to_step = steps}};
    clues.train_line = [](const ChangedSettings& changed) {
        std::string line = "lockstep train";
        for (const auto& [name, value] : changed) line += fmt::format(" --{} {}", name, value);
        return line;
    };
    return clues;
}

/// Why it failed, in words that a browser must not believe.
inline RootCause made_up_cause() {
    RootCause cause{.followers = {0, 2, 3}};
    cause.error = {.ranks = {1},
                   .host = "n7",
                   .code = "E213",
                   .what = "'<script>alert(1)</script>|`x`' is damaged",
                   .why = "a \"quoted\" & 'odd' reason",
                   .fix = "copy it again",
                   .time_s = 1.7e9};
    return cause;
}

inline Report made_up_report(int ranks = 4, std::int64_t steps = 20) {
    return make_report(made_up_figures(ranks, steps), made_up_clues(steps));
}

}  // namespace lockstep::test
