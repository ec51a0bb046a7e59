// SPDX-License-Identifier: Apache-2.0
// Tested: train/program/program_graph_test.cpp.
#include "program/mode_switch.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

// An argument that changes in evaluation.
struct ModeSwitch {
    std::string_view argument;   ///< true, or a share that is dropped
    std::string_view condition;  ///< an argument that must be a tensor or not 0; "": always
    std::initializer_list<std::string_view> operators;
};

const ModeSwitch mode_switches[] = {
    {"training",
     "running_mean",
     {"aten::batch_norm",
      "aten::native_batch_norm",
      "aten::_native_batch_norm_legit",
      "aten::_native_batch_norm_legit_functional"}},
    {"use_input_stats", "running_mean", {"aten::instance_norm"}},
    {"train",
     "p",
     {"aten::dropout",
      "aten::dropout_",
      "aten::feature_dropout",
      "aten::feature_dropout_",
      "aten::alpha_dropout",
      "aten::alpha_dropout_",
      "aten::feature_alpha_dropout",
      "aten::feature_alpha_dropout_",
      "aten::native_dropout"}},
    {"train", "dropout", {"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"}},
    {"training",
     "",
     {"aten::rrelu",
      "aten::rrelu_",
      "aten::rrelu_with_noise",
      "aten::rrelu_with_noise_",
      "aten::rrelu_with_noise_functional"}},
    {"dropout_p", "dropout_p", {"aten::scaled_dot_product_attention"}}};

const ModeSwitch* switch_of(std::string_view operator_name) {
    const auto found = std::ranges::find_if(mode_switches, [&](const ModeSwitch& one) {
        return std::ranges::find(one.operators, operator_name) != one.operators.end();
    });
    return found == std::end(mode_switches) ? nullptr : found;
}

bool meets(const ProgramCall& call, const ModeSwitch& rule) {
    if (rule.condition.empty()) return true;
    const auto place = call.op->schema().argumentIndexWithName(std::string(rule.condition));
    if (!place) return false;
    const auto index = static_cast<std::size_t>(*place);
    const c10::IValue& value = call.arguments[index];
    return (value.isDouble() && value.toDouble() > 0) ||
           std::ranges::find(call.feeds, index, &Feed::argument) != call.feeds.end();
}

}  // namespace

std::optional<CallMode> switch_mode(ProgramCall& call) {
    const ModeSwitch* rule = switch_of(call.name);
    const auto place = rule == nullptr
                           ? std::optional<int>()
                           : call.op->schema().argumentIndexWithName(std::string(rule->argument));
    if (!place) return {};
    const auto index = static_cast<std::size_t>(*place);
    const c10::IValue& flag = call.arguments[index];
    const bool is_on = flag.isDouble() ? flag.toDouble() > 0 : !flag.isBool() || flag.toBool();
    const bool is_meant = meets(call, *rule);
    if (call.name.find("batch_norm") != call.name.npos) call.of_batch = index;
    if (flag.isDouble())
        call.in_evaluation.emplace(index, 0.0);
    else if (rule->condition != "running_mean" || is_meant)
        call.in_evaluation.emplace(index, false);
    if (!is_meant) return {};
    return is_on ? CallMode::train : CallMode::evaluate;
}

}  // namespace lockstep
