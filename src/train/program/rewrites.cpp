// SPDX-License-Identifier: Apache-2.0
// A program is exported on one device and trained on another, where kernels give other strides: a
// view that was possible there fails here (attention in fp32 on a GPU). Such a view may be a copy
// if nobody writes to it. And a program that was exported for training is switched to evaluation by
// other arguments of some calls.
//
// Tested: train/program/program_graph_test.cpp.
#include "program/program_graph.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

/// Slots whose values share memory.
class Families {
  public:
    explicit Families(std::size_t slots) : parents_(slots) {
        std::iota(parents_.begin(), parents_.end(), SlotIndex{0});
    }
    SlotIndex of(SlotIndex slot) const {
        while (parents_[slot] != slot) slot = parents_[slot];
        return slot;
    }
    void join(SlotIndex a, SlotIndex b) { parents_[of(a)] = of(b); }

  private:
    std::vector<SlotIndex> parents_;
};

template <class Visit>
void for_each_alias(const ProgramCall& call, Visit&& visit) {
    if (!call.op) return;
    for (const Feed& feed : call.feeds)
        if (const auto* alias = call.op->schema().arguments()[feed.argument].alias_info())
            for (const auto& slot : feed.slots)
                if (slot) visit(*slot, *alias);
}

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

void let_views_copy(ProgramGraph& graph) {
    Families families(graph.start.size());
    std::vector<SlotIndex> written;
    for (const ProgramCall& call : graph.calls)
        for_each_alias(call, [&](SlotIndex slot, const c10::AliasInfo& alias) {
            if (alias.isWrite()) written.push_back(slot);
            for (const auto& result : call.results)
                if (result) families.join(*result, slot);
        });
    const c10::OperatorHandle copies =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::reshape", "");
    for (ProgramCall& call : graph.calls) {
        const bool is_view =
            call.name == "aten::view" && call.op && call.op->schema().overload_name().empty();
        const auto shares_memory = [&](SlotIndex slot) {
            return families.of(slot) == families.of(*call.results.front());
        };
        if (is_view && std::ranges::none_of(written, shares_memory)) call.op = copies;
    }
}

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
