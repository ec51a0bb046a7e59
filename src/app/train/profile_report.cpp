// SPDX-License-Identifier: Apache-2.0
#include "train/profile_report.hpp"

#include "lockstep/core/numbers.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

struct Totals {
    std::int64_t parameters = 0;
    std::uint64_t activation_bytes = 0, flops = 0;
    double watched_s = 0;
};

Totals totals_of(const ModelProfile& profile) {
    Totals totals;
    for (const LayerCost& layer : profile.layers) {
        totals.parameters += layer.parameters;
        totals.activation_bytes += layer.activation_bytes;
    }
    for (const OperatorCost& cost : profile.operators) {
        totals.flops += cost.flops.value_or(0);
        totals.watched_s += cost.self_s;
    }
    return totals;
}

const char* name_of(StepPass pass) {
    return pass == StepPass::forward ? "forward" : "backward";
}

std::string shape_of(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

double giga(std::uint64_t flops) {
    return static_cast<double>(flops) / 1e9;
}

std::string operator_row(const OperatorCost& cost, double watched_s) {
    const std::string work =
        cost.flops
            ? fmt::format("{:9.3f}  {:9.1f}", giga(*cost.flops), giga(*cost.flops) / cost.self_s)
            : fmt::format("{:>9}  {:>9}", "-", "-");
    return fmt::format("{:10.3f}  {:4.1f} %  {:6g}  {}  {:<8}  {}\n",
                       1e3 * cost.self_s,
                       100 * cost.self_s / watched_s,
                       cost.calls,
                       work,
                       name_of(cost.pass),
                       cost.name);
}

std::string operator_table(const ModelProfile& profile, const Totals& totals, std::size_t most) {
    const std::size_t all = profile.operators.size();
    const std::size_t shown = most == 0 ? all : std::min(most, all);
    std::string text = "   self ms   share   calls      GFLOP    GFLOP/s  pass      operator\n";
    for (std::size_t i = 0; i < shown; ++i)
        text += operator_row(profile.operators[i], totals.watched_s);
    if (shown < all) text += fmt::format("and {} more: --top 0 lists all\n", all - shown);
    return text;
}

std::string layer_table(const ModelProfile& profile) {
    std::size_t width = 5;
    for (const LayerCost& layer : profile.layers) width = std::max(width, layer.name.size());
    std::string text = fmt::format(
        "{:<{}}  {:>11}  {:>11}  output\n", "layer", width, "parameters", "activations");
    for (const LayerCost& layer : profile.layers)
        text += fmt::format("{:<{}}  {:>11}  {:>11}  {}\n",
                            layer.name.empty() ? "-" : layer.name,
                            width,
                            grouped(static_cast<std::uint64_t>(layer.parameters)),
                            bytes_text(layer.activation_bytes),
                            layer.output.empty() ? "-" : shape_of(layer.output));
    return text;
}

}  // namespace

std::string profile_text(const ProfileSettings& settings,
                         const ModelProfile& profile,
                         std::size_t most) {
    const Totals totals = totals_of(profile);
    const double step_s = profile.forward_s + profile.backward_s;
    return fmt::format("model {} | input {}, output {} | {} thread(s), {} steps\n\n{}\n{}\n",
                       settings.model.name,
                       shape_of(profile.input),
                       shape_of(profile.output),
                       settings.threads,
                       settings.steps,
                       operator_table(profile, totals, most),
                       layer_table(profile)) +
           fmt::format("parameters   {}\n",
                       grouped(static_cast<std::uint64_t>(totals.parameters))) +
           fmt::format("activations  {}; at its peak a step takes {}\n",
                       bytes_text(totals.activation_bytes),
                       bytes_text(profile.peak_bytes)) +
           fmt::format(
               "time         forward {:.3f} ms, backward {:.3f} ms; {:.3f} ms in operators "
               "while watched\n",
               1e3 * profile.forward_s,
               1e3 * profile.backward_s,
               1e3 * totals.watched_s) +
           fmt::format("work         {:.3f} GFLOP where known, {:.1f} GFLOP/s\n",
                       giga(totals.flops),
                       giga(totals.flops) / step_s);
}

Json profile_json(const ProfileSettings& settings, const ModelProfile& profile) {
    const Totals totals = totals_of(profile);
    Json operators = Json::array(), layers = Json::array();
    for (const OperatorCost& cost : profile.operators)
        operators.push_back({{"pass", name_of(cost.pass)},
                             {"name", cost.name},
                             {"calls", cost.calls},
                             {"self_ms", 1e3 * cost.self_s},
                             {"flops", cost.flops ? Json(*cost.flops) : Json()}});
    for (const LayerCost& layer : profile.layers)
        layers.push_back({{"name", layer.name},
                          {"parameters", layer.parameters},
                          {"output", layer.output},
                          {"activation_bytes", layer.activation_bytes}});
    return {{"model", settings.model.name},
            {"threads", settings.threads},
            {"steps", settings.steps},
            {"input", profile.input},
            {"output", profile.output},
            {"operators", operators},
            {"layers", layers},
            {"parameters", totals.parameters},
            {"activation_bytes", totals.activation_bytes},
            {"peak_bytes", profile.peak_bytes},
            {"forward_ms", 1e3 * profile.forward_s},
            {"backward_ms", 1e3 * profile.backward_s},
            {"flops", totals.flops}};
}

}  // namespace lockstep
