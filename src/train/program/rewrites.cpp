// SPDX-License-Identifier: Apache-2.0
// A program is exported on one device and trained on another, where kernels give other strides: a
// view that was possible there fails here (attention in fp32 on a GPU). Such a view may be a copy
// if nobody writes to it. And a program that was exported for training is switched to evaluation by
// other arguments of some calls. Sizes are computed as Python does.
//
// Tested: train/program/program_graph_test.cpp.
#include "program/program_graph.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>
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

// A later size may be all that an earlier one is for.
void drop_unread_numbers(ProgramGraph& graph) {
    std::vector<std::int64_t> readers(graph.start.size());
    const auto count = [&](const ProgramCall& call, std::int64_t change) {
        for (const Feed& feed : call.feeds)
            for (const auto& slot : feed.slots)
                if (slot) readers[*slot] += change;
    };
    for (const ProgramCall& call : graph.calls) count(call, 1);
    for (const SlotIndex slot : graph.outputs) readers[slot] += 1;
    for (const auto& [slot, buffer] : graph.updates) readers[slot] += 1;
    std::vector<bool> is_dropped(graph.calls.size());
    for (std::size_t i = graph.calls.size(); i-- > 0;) {
        const ProgramCall& call = graph.calls[i];
        if (call.number == nullptr) continue;
        is_dropped[i] = std::ranges::none_of(
            call.results, [&](const auto& slot) { return slot && readers[*slot] > 0; });
        if (is_dropped[i]) count(call, -1);
    }
    std::size_t i = 0;
    std::erase_if(graph.calls, [&](const ProgramCall&) { return is_dropped[i++]; });
}

void note_last_uses(ProgramGraph& graph) {
    std::vector<bool> is_noted(graph.start.size());
    for (const SlotIndex slot : graph.outputs) is_noted[slot] = true;
    for (const auto& [slot, buffer] : graph.updates) is_noted[slot] = true;
    for (std::size_t i = graph.calls.size(); i-- > 0;) {
        ProgramCall& call = graph.calls[i];
        const auto note = [&](const std::optional<SlotIndex>& slot) {
            if (!slot || is_noted[*slot]) return;
            is_noted[*slot] = true;
            call.last_uses.push_back(*slot);
        };
        std::ranges::for_each(call.results, note);
        for (const Feed& feed : call.feeds) std::ranges::for_each(feed.slots, note);
    }
}

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
        const bool has_result = !call.results.empty() && call.results.front();
        if (!has_result || !(is_view || call.takes_strides)) continue;
        call.may_copy = std::ranges::none_of(written, shares_memory);
        if (is_view && call.may_copy) call.op = copies;
    }
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
      "aten::feature_dropout",
      "aten::alpha_dropout",
      "aten::feature_alpha_dropout",
      "aten::native_dropout"}},
    {"train", "dropout", {"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"}},
    {"training",
     "",
     {"aten::rrelu", "aten::rrelu_with_noise", "aten::rrelu_with_noise_functional"}},
    {"dropout_p", "dropout_p", {"aten::scaled_dot_product_attention"}}};

const ModeSwitch* switch_of(std::string_view operator_name) {
    if (operator_name.ends_with('_')) operator_name.remove_suffix(1);  // the same, in place
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

using Values = std::vector<c10::IValue>;

std::int64_t whole(const c10::IValue& value) {
    return value.isBool() ? static_cast<std::int64_t>(value.toBool()) : value.toInt();
}

double real(const c10::IValue& value) {
    return value.isDouble() ? value.toDouble() : static_cast<double>(whole(value));
}

bool are_whole(const Values& values) {
    return std::ranges::none_of(values, [](const c10::IValue& one) { return one.isDouble(); });
}

// Wide enough for any result of two sizes.
__extension__ using Wide = __int128;

std::int64_t fitting(Wide result) {
    if (result < INT64_MIN || result > INT64_MAX)
        throw std::runtime_error("a size does not fit into 64 bits");
    return static_cast<std::int64_t>(result);
}

Wide divisor(const c10::IValue& value) {
    if (whole(value) == 0) throw std::runtime_error("division by zero");
    return whole(value);
}

template <class Operation>
c10::IValue computed(const Values& v) {
    if (!are_whole(v)) return Operation()(real(v[0]), real(v[1]));
    return fitting(Operation()(Wide{whole(v[0])}, Wide{whole(v[1])}));
}

// Rounded down, as Python does.
c10::IValue floor_divide(const Values& v) {
    if (!are_whole(v)) return std::floor(real(v[0]) / real(v[1]));
    const Wide a = whole(v[0]), b = divisor(v[1]);
    return fitting(a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
}

c10::IValue modulo(const Values& v) {
    if (!are_whole(v)) return real(v[0]) - real(v[1]) * std::floor(real(v[0]) / real(v[1]));
    const Wide b = divisor(v[1]), rest = whole(v[0]) % b;
    return fitting(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

c10::IValue divide(const Values& v) {
    return real(v[0]) / real(v[1]);
}

c10::IValue negate(const Values& v) {
    if (!are_whole(v)) return -real(v[0]);
    return fitting(-Wide{whole(v[0])});
}

c10::IValue as_real(const Values& v) {
    return real(v[0]);
}

template <class Order>
c10::IValue compared(const Values& v) {
    return are_whole(v) ? Order()(whole(v[0]), whole(v[1])) : Order()(real(v[0]), real(v[1]));
}

template <class Order>
c10::IValue chosen(const Values& v) {
    if (are_whole(v)) return Order()(whole(v[1]), whole(v[0])) ? whole(v[1]) : whole(v[0]);
    return Order()(real(v[1]), real(v[0])) ? real(v[1]) : real(v[0]);
}

template <std::size_t operands, NumberOperation operation>
c10::IValue taking(const Values& v) {
    if (v.size() != operands) throw std::runtime_error("it has too few or too many operands");
    return operation(v);
}

struct NamedOperation {
    std::string_view name;
    NumberOperation operation;
};

constexpr NamedOperation operations[] = {
    {"_operator.add", taking<2, computed<std::plus<>>>},
    {"_operator.sub", taking<2, computed<std::minus<>>>},
    {"_operator.mul", taking<2, computed<std::multiplies<>>>},
    {"_operator.floordiv", taking<2, floor_divide>},
    {"_operator.mod", taking<2, modulo>},
    {"_operator.truediv", taking<2, divide>},
    {"_operator.neg", taking<1, negate>},
    {"_operator.ge", taking<2, compared<std::greater_equal<>>>},
    {"_operator.gt", taking<2, compared<std::greater<>>>},
    {"_operator.le", taking<2, compared<std::less_equal<>>>},
    {"_operator.lt", taking<2, compared<std::less<>>>},
    {"_operator.eq", taking<2, compared<std::equal_to<>>>},
    {"_operator.ne", taking<2, compared<std::not_equal_to<>>>},
    {"torch.sym_float", taking<1, as_real>},
    {"torch.sym_max", taking<2, chosen<std::greater<>>>},
    {"torch.sym_min", taking<2, chosen<std::less<>>>}};

}  // namespace

void finish(ProgramGraph& graph) {
    drop_unread_numbers(graph);
    note_last_uses(graph);
    let_views_copy(graph);
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

NumberOperation number_operation(std::string_view target) {
    const auto found = std::ranges::find(operations, target, &NamedOperation::name);
    return found == std::end(operations) ? nullptr : found->operation;
}

}  // namespace lockstep
