// SPDX-License-Identifier: Apache-2.0
#include "tune/trials.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/observe/run_figures.hpp"

#include "tune/comparison.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

// The first line of the training's error, which is enough in a table.
std::string error_line(const std::string& output) {
    const auto begin = output.find("error E");
    if (begin == output.npos) return "it ended without a word";
    return printable(output.substr(begin, output.find('\n', begin) - begin));
}

}  // namespace

Trials::Trials(std::filesystem::path program,
               std::filesystem::path scratch,
               std::vector<std::string> words,
               std::function<void(const std::string&)> look)
    : program_(std::move(program)),
      scratch_(std::move(scratch)),
      words_(std::move(words)),
      look_(std::move(look)) {}

std::optional<TrialResult> Trials::train(const Variant& variant, std::int64_t steps) {
    Variant all = fixed_;
    for (const auto& [name, value] : variant) all[name] = value;
    ShortTraining training{
        .program = program_, .words = words_, .run = scratch_ / fmt::format("run{}", ++count_)};
    for (const auto& [name, value] : all)
        if (name != "np") training.words.insert(training.words.end(), {"--" + name, value});
    if (all.contains("np")) training.np = static_cast<int>(parse_integer(all.at("np")).value_or(1));
    training.words.insert(training.words.end(), {"--max-steps", std::to_string(steps)});
    const double begin_s = now_s();
    const TrainingEnd end = run_training(training, [&] { look_(settings_text(variant)); });
    exit_code_ = end.exit_code;
    why_not_ = end.exit_code == 0 ? "" : error_line(end.output);
    if (end.exit_code != 0) return {};
    TrialResult result{.step_s = mean_step(read_run_figures(training.run)).wall_s(),
                       .wall_s = now_s() - begin_s,
                       .virtual_ranks = end.virtual_ranks,
                       .parameters = end.parameters};
    std::error_code ignored;
    fs::remove_all(training.run, ignored);
    return result;
}

Error Trials::failure() const {
    return Error("E705",
                 "the training does not run as it is now",
                 why_not_,
                 "mend that first; 'lockstep train' with the same options shows all of it")
        .exiting_as(exit_code_);
}

void add_round(KnobResult& result, std::size_t variant, const TrialResult& trial) {
    std::string& before = result.parameters[variant];
    check(before.empty() || before == trial.parameters, [&] {
        return Error(
            "E743",
            fmt::format("--{} {} gave other parameters than before",
                        result.knob.name,
                        variant_text(result.knob, result.knob.variants[variant])),
            fmt::format("{} in place of {}, by the same training", trial.parameters, before),
            "please report this with the command");
    });
    before = trial.parameters;
    result.step_s[variant].push_back(trial.step_s);
}

KnobResult try_knob(Trials& trials, const Knob& knob, std::int64_t steps, int rounds) {
    const std::size_t ways = knob.variants.size();
    KnobResult result{.knob = knob,
                      .step_s = std::vector<std::vector<double>>(ways),
                      .parameters = std::vector<std::string>(ways),
                      .why_not = std::vector<std::string>(ways)};
    for (int round = 0; round < rounds; ++round)
        for (std::size_t i = 0; i < ways; ++i) {
            if (!result.why_not[i].empty()) continue;
            const auto trial = trials.train(knob.variants[i], steps);
            result.why_not[i] = trials.why_not();
            check(trial || i > 0, [&] { return trials.failure(); });
            if (!trial) continue;
            add_round(result, i, *trial);
        }
    result.quickest = quickest_way(result.step_s);
    return result;
}

}  // namespace lockstep
