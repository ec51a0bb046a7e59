// SPDX-License-Identifier: Apache-2.0
#include "tune/tune_report.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string step_text(double seconds) {
    return fmt::format("{:.3f} ms", 1e3 * seconds);
}

// "(2.1 to 2.4)"
std::string range_text(const std::vector<double>& seconds) {
    const auto [least, most] = std::ranges::minmax(seconds);
    return fmt::format("({:.3f} to {:.3f})", 1e3 * least, 1e3 * most);
}

std::string remark(const KnobResult& result, std::size_t i) {
    if (i == 0) return "as it is now";
    const SpeedUp found = speed_up(result.step_s[0], result.step_s[i]);
    auto text = found.is_gain() ? speed_up_text(found) : std::string("no gain beyond the noise");
    if (result.parameters[i] != result.parameters[0]) text += ", other bits";
    return text;
}

std::string toml_value(const std::string& text) {
    return parse_integer(text) ? text : fmt::format("\"{}\"", text);
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
        grouped(static_cast<std::uint64_t>(tuning.steps)),
        tuning.parameters);
}

}  // namespace

std::string knob_text(const KnobResult& result) {
    const bool decides = result.knob.effect == KnobEffect::decides_bits;
    auto text = fmt::format("{}{}\n",
                            result.knob.name,
                            decides ? " (decides bits: only chosen with --allow-bits)" : "");
    for (std::size_t i = 0; i < result.knob.variants.size(); ++i) {
        const std::string value = variant_text(result.knob, result.knob.variants[i]);
        if (!result.why_not[i].empty())
            text += fmt::format("  {:<26} does not run: {}\n", value, result.why_not[i]);
        else
            text += fmt::format("  {:<26} {} a step {}: {}\n",
                                value,
                                step_text(median_of(result.step_s[i])),
                                range_text(result.step_s[i]),
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
        text += fmt::format("{} = {}\n", name, toml_value(value));
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
                        {"decides_bits", result.knob.effect == KnobEffect::decides_bits},
                        {"parameters", result.parameters[i]},
                        {"why_not", result.why_not[i]}};
            way["step_s"] = result.step_s[i];
            json["tried"].push_back(way);
        }
    return json;
}

std::string common_parameters(const std::vector<KnobResult>& knobs, const std::string& first) {
    for (const KnobResult& result : knobs) {
        if (result.knob.effect == KnobEffect::decides_bits) continue;
        for (std::size_t i = 0; i < result.parameters.size(); ++i)
            check(result.parameters[i].empty() || result.parameters[i] == first, [&] {
                return Error("E743",
                             fmt::format("--{} {} gave other parameters",
                                         result.knob.name,
                                         variant_text(result.knob, result.knob.variants[i])),
                             fmt::format("{} instead of {}", result.parameters[i], first),
                             "please report this with the command");
            });
    }
    return first;
}

}  // namespace lockstep
