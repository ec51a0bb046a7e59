// SPDX-License-Identifier: Apache-2.0
#include "tune/trials.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/run_figures.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

double half_spread(std::span<const double> values) {
    const auto [least, most] = std::ranges::minmax(values);
    const double middle = median_of({values.begin(), values.end()});
    return middle > 0 ? (most - least) / (2 * middle) : 0;
}

// Beside the default, which comes first. Where buckets are cut is no setting: a rehearsal decides.
std::vector<std::string> other_values(const std::string& name) {
    if (name == "io-threads") return {"1", "2", "4"};
    if (name == "transport") return {"shared-memory", "mpi"};
    if (name == "comm-thread") return {"on", "off"};
    if (name == "leaves") return {"one-by-one"};
    return {"stream", "resident"};  // data-mode
}

// By the table of settings, so that a setting which begins to decide bits is seen here.
bool decides_bits(const std::string& name) {
    TrainSettings settings;
    return name != "np" &&  // Lockstep's promise
           find_option(setting_table(settings), name).scope == OptionScope::decides;
}

Variant with(Variant variant, const std::string& name, const std::string& value) {
    variant[name] = value;
    return variant;
}

/// 1, 2, 4, ... and `most` itself.
std::vector<int> doubled_to(int most) {
    std::vector<int> numbers;
    for (int number = 1; number < most; number *= 2) numbers.push_back(number);
    numbers.push_back(std::max(most, 1));
    return numbers;
}

int ranks_in(const Variant& current, const KnobFacts& facts) {
    const auto found = current.find("np");
    return found == current.end() ? facts.np
                                  : static_cast<int>(parse_integer(found->second).value_or(1));
}

std::vector<Variant> numbers_of_ranks(const KnobFacts& facts, const Variant& current) {
    std::vector<Variant> variants = {with(current, "np", std::to_string(facts.np))};
    const int most = std::min(facts.cores / std::max(facts.threads, 1), facts.virtual_ranks);
    for (const int np : doubled_to(most))
        if (np != facts.np) variants.push_back(with(current, "np", std::to_string(np)));
    return variants;
}

// Returns numbers of ranks that leave each of them this number of threads: chapter 9 of the book.
std::vector<Variant> numbers_of_threads(const KnobFacts& facts, const Variant& current) {
    const std::string now = std::to_string(ranks_in(current, facts));
    std::vector<Variant> variants = {
        with(with(current, "np", now), "threads", std::to_string(facts.threads))};
    for (const int threads : doubled_to(facts.cores)) {
        if (threads == facts.threads) continue;
        const int fitting = std::clamp(facts.cores / threads, 1, facts.virtual_ranks);
        const std::string np = facts.given.contains("np") ? now : std::to_string(fitting);
        variants.push_back(with(with(current, "np", np), "threads", std::to_string(threads)));
    }
    return variants;
}

std::vector<Variant> values_of(const std::string& name,
                               const KnobFacts& facts,
                               const Variant& current) {
    const bool is_between_ranks = name == "transport" || name == "comm-thread";
    if (is_between_ranks && ranks_in(current, facts) == 1) return {};
    TrainSettings usual;
    std::vector<Variant> variants = {
        with(current, name, find_option(setting_table(usual), name).default_value)};
    for (const std::string& value : other_values(name)) {
        const auto number = parse_integer(value);
        if (!number || *number <= facts.cores) variants.push_back(with(current, name, value));
    }
    return variants;
}

// The first line of the training's error, which is enough in a table.
std::string error_line(const std::string& output) {
    const auto begin = output.find("error E");
    if (begin == output.npos) return "it ended without a word";
    return printable(output.substr(begin, output.find('\n', begin) - begin));
}

std::string remark(const KnobResult& result, std::size_t i) {
    if (i == 0) return "as it is now";
    const SpeedUp found = speed_up(result.step_s[0], result.step_s[i]);
    auto text = found.is_gain() ? speed_up_text(found) : std::string("no gain beyond the noise");
    if (result.parameters[i] != result.parameters[0]) text += ", other bits";
    return text;
}

std::string gain_text(const Tuning& tuning) {
    if (tuning.turns == 0) return "no setting is faster beyond the noise\n";
    const std::string settings = settings_text(tuning.chosen);
    if (!tuning.confirmed.is_gain())
        return fmt::format("no gain beyond the noise: {} looked faster, but in {} turns was {}\n",
                           settings,
                           tuning.turns,
                           speed_up_text(tuning.confirmed));
    return fmt::format(
        "gain: {} is {}, in {} turns\n", settings, speed_up_text(tuning.confirmed), tuning.turns);
}

std::string bits_text(const Tuning& tuning) {
    if (tuning.changes_bits)
        return "bits: the chosen settings change them, as --allow-bits allowed: it is another "
               "model\n";
    return fmt::format(
        "bits: all trainings whose settings only change speed gave the same parameters, after {} "
        "steps {}\n",
        grouped(tuning.steps),
        tuning.parameters);
}

}  // namespace

SpeedUp speed_up(std::span<const double> before, std::span<const double> after) {
    expect(before.size() == after.size() && !before.empty(), "rounds come in pairs");
    std::vector<double> rounds;
    for (std::size_t i = 0; i < before.size(); ++i) rounds.push_back(before[i] / after[i]);
    const auto [least, most] = std::ranges::minmax(rounds);
    return {.median = median_of(rounds),
            .least = least,
            .most = most,
            .noise = half_spread(before) + half_spread(after)};
}

std::string speed_up_text(const SpeedUp& found) {
    return fmt::format(
        "{:.2f} times as fast ({:.2f} to {:.2f})", found.median, found.least, found.most);
}

std::size_t quickest_way(std::span<const std::vector<double>> ways) {
    std::size_t best = 0;
    double gain = 1;
    for (std::size_t i = 1; i < ways.size(); ++i) {
        if (ways[i].size() != ways[0].size() || ways[i].empty()) continue;
        const SpeedUp found = speed_up(ways[0], ways[i]);
        if (!found.is_gain() || found.median <= gain) continue;
        best = i;
        gain = found.median;
    }
    return best;
}

std::vector<std::string> knob_names() {
    return {"np", "transport", "comm-thread", "io-threads", "leaves", "data-mode", "threads"};
}

Knob knob_of(const std::string& name, const KnobFacts& facts, const Variant& current) {
    Knob knob{.name = name, .decides_bits = decides_bits(name)};
    if (facts.given.contains(name)) return knob;
    if (name == "np")
        knob.variants = numbers_of_ranks(facts, current);
    else if (name == "threads")
        knob.variants = numbers_of_threads(facts, current);
    else
        knob.variants = values_of(name, facts, current);
    return knob;
}

std::string settings_text(const Variant& variant) {
    std::string text;
    for (const auto& [name, value] : variant)
        text += fmt::format("{}--{} {}", text.empty() ? "" : " ", name, value);
    return text;
}

std::string variant_text(const Knob& knob, const Variant& variant) {
    if (knob.name == "threads")
        return fmt::format("{} in each of {} rank(s)", variant.at("threads"), variant.at("np"));
    const auto own = variant.find(knob.name);
    return own == variant.end() ? settings_text(variant) : own->second;
}

std::optional<TrialResult> Trials::train(const Variant& variant, std::int64_t steps) {
    Variant all = fixed;
    for (const auto& [name, value] : variant) all[name] = value;
    ShortTraining training{.words = words, .run = scratch / fmt::format("run{}", ++count)};
    for (const auto& [name, value] : all)
        if (name != "np") training.words.insert(training.words.end(), {"--" + name, value});
    if (all.contains("np")) training.np = static_cast<int>(parse_integer(all.at("np")).value_or(1));
    training.words.insert(training.words.end(), {"--max-steps", std::to_string(steps)});
    const double begin_s = now_s();
    const TrainingEnd end = run_training(training, [&] { look(settings_text(variant)); });
    exit_code = end.exit_code;
    why_not = end.exit_code == 0 ? "" : error_line(end.output);
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
                 "the training fails with its current settings",
                 why_not,
                 "fix that first; 'lockstep train' with the same options shows the whole error")
        .exiting_as(exit_code);
}

void add_round(KnobResult& result, std::size_t variant, const TrialResult& trial) {
    std::string& before = result.parameters[variant];
    check(before.empty() || before == trial.parameters,
          "E743",
          fmt::format("--{} {} gave other parameters than before",
                      result.knob.name,
                      variant_text(result.knob, result.knob.variants[variant])),
          fmt::format("{} instead of {}, by the same training", trial.parameters, before),
          "please report this with the command");
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
            result.why_not[i] = trials.why_not;
            check(trial || i > 0, [&] { return trials.failure(); });
            if (!trial) continue;
            add_round(result, i, *trial);
        }
    result.quickest = quickest_way(result.step_s);
    return result;
}

std::string knob_text(const KnobResult& result) {
    auto text = result.knob.name;
    if (result.knob.decides_bits) text += " (decides bits: only chosen with --allow-bits)";
    text += "\n";
    for (std::size_t i = 0; i < result.knob.variants.size(); ++i) {
        text += fmt::format("  {:<26} ", variant_text(result.knob, result.knob.variants[i]));
        if (!result.why_not[i].empty()) {
            text += fmt::format("does not run: {}\n", result.why_not[i]);
            continue;
        }
        const auto [least, most] = std::ranges::minmax(result.step_s[i]);
        text += fmt::format("{:.3f} ms a step ({:.3f} to {:.3f}): {}\n",
                            1e3 * median_of(result.step_s[i]),
                            1e3 * least,
                            1e3 * most,
                            remark(result, i));
    }
    return text;
}

std::string verdict_text(const Tuning& tuning) {
    std::string text;
    for (const std::string& left : tuning.left) text += fmt::format("not tried: {}\n", left);
    return text + gain_text(tuning) + bits_text(tuning);
}

std::string config_of(const Tuning& tuning, const std::string& when) {
    auto text = fmt::format("# Found by lockstep tune, {}, in {} trainings of {} steps.\n# {}# {}",
                            when,
                            tuning.trainings,
                            tuning.steps,
                            gain_text(tuning),
                            bits_text(tuning));
    if (tuning.turns == 0 || !tuning.confirmed.is_gain()) return text;
    if (!tuning.chosen.contains("virtual-ranks"))
        text += fmt::format("virtual-ranks = {}\n", tuning.virtual_ranks);
    for (const auto& [name, value] : tuning.chosen)
        text += fmt::format("{} = {}\n", name, parse_integer(value) ? value : '"' + value + '"');
    return text;
}

Json tuning_json(const Tuning& tuning) {
    Json json = {{"tune", "lockstep"},
                 {"steps", tuning.steps},
                 {"rounds", tuning.rounds},
                 {"virtual_ranks", tuning.virtual_ranks},
                 {"trainings", tuning.trainings},
                 {"parameters", tuning.parameters},
                 {"changes_bits", tuning.changes_bits},
                 {"turns", tuning.turns},
                 {"is_gain", tuning.turns > 0 && tuning.confirmed.is_gain()}};
    json["chosen"] = Json(tuning.chosen);
    json["speed_up"] = {{"median", tuning.confirmed.median},
                        {"least", tuning.confirmed.least},
                        {"most", tuning.confirmed.most}};
    json["not_tried"] = tuning.left;
    json["tried"] = Json::array();
    for (const KnobResult& result : tuning.knobs)
        for (std::size_t i = 0; i < result.knob.variants.size(); ++i) {
            Json way = {{"setting", result.knob.name},
                        {"value", variant_text(result.knob, result.knob.variants[i])},
                        {"decides_bits", result.knob.decides_bits},
                        {"parameters", result.parameters[i]},
                        {"why_not", result.why_not[i]}};
            way["step_s"] = result.step_s[i];
            json["tried"].push_back(way);
        }
    return json;
}

std::string common_parameters(const std::vector<KnobResult>& knobs, const std::string& first) {
    for (const KnobResult& result : knobs) {
        if (result.knob.decides_bits) continue;
        for (std::size_t i = 0; i < result.parameters.size(); ++i)
            check(result.parameters[i].empty() || result.parameters[i] == first,
                  "E743",
                  fmt::format("--{} {} gave other parameters",
                              result.knob.name,
                              variant_text(result.knob, result.knob.variants[i])),
                  fmt::format("{} instead of {}", result.parameters[i], first),
                  "please report this with the command");
    }
    return first;
}

}  // namespace lockstep
