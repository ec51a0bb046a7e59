// SPDX-License-Identifier: Apache-2.0
// A node of the archive names its arguments: {"name": "dim", "arg": {"as_int": 1}}. Compiling takes
// the operator's schema, puts each argument at its place, and notes those that are values of
// earlier nodes. A program exported for training is also the one for evaluation, with some flags
// the other way: `mode_switches` has them, as torch.ao.quantization.move_exported_model_to_eval().
//
// Tested: train/program/program_graph_test.cpp, train/program/program_peer (against Python's bits).
#include "program/program_graph.hpp"

#include "lockstep/core/log.hpp"

#include "model/known_errors.hpp"
#include "program/number_operations.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <torch/version.h>

namespace lockstep {
namespace {

using Numbers = std::vector<std::int64_t>;

// An argument that is another one in evaluation.
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

// Running statistics, which their operator writes although its schema does not say so.
constexpr std::string_view silent_writers[] = {
    "aten::batch_norm", "aten::native_batch_norm", "aten::instance_norm"};
// What reads or writes files, or speaks to other processes.
constexpr std::string_view forbidden[] = {"aten::from_file", "aten::_print", "aten::_save"};

const ModeSwitch* switch_of(std::string_view operator_name) {
    const auto found = std::ranges::find_if(mode_switches, [&](const ModeSwitch& one) {
        return std::ranges::find(one.operators, operator_name) != one.operators.end();
    });
    return found == std::end(mode_switches) ? nullptr : found;
}

double real_of(const Json& json) {
    if (!json.is_string()) return json.get<double>();
    const auto text = json.get<std::string>();
    if (text == "Infinity") return HUGE_VAL;
    if (text == "-Infinity") return -HUGE_VAL;
    check(text == "NaN", [&] { return Error("E222", "'" + text + "' is no number", "", ""); });
    return std::nan("");
}

template <class T>
c10::List<T> list_of(const Json& json) {
    c10::List<T> list;
    for (const Json& one : json) list.push_back(one.get<T>());
    return list;
}

c10::List<double> reals_of(const Json& json) {
    c10::List<double> list;
    for (const Json& one : json) list.push_back(real_of(one));
    return list;
}

// schema.py's MemoryFormat: contiguous 1, channels_last 2, channels_last_3d 3, preserve 4.
std::int64_t memory_format_of(const Json& json) {
    constexpr std::int64_t formats[] = {0, 0, 2, 3, 1};
    return formats[std::clamp<std::int64_t>(json.get<std::int64_t>(), 0, 4)];
}

c10::IValue wrapped(const c10::IValue& number) {
    const auto type = number.isInt() ? at::kLong : number.isBool() ? at::kBool : at::kDouble;
    at::Tensor tensor = at::scalar_tensor(number.toScalar(), at::TensorOptions().dtype(type));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
}

c10::TypePtr without_optional(c10::TypePtr type) {
    if (const auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
    return type;
}

// What the JSON spells in another way than the operator wants it: a whole number for a float, one
// number for a list of a fixed length, a number for a tensor.
c10::IValue fitted(c10::IValue value, const c10::Argument& argument) {
    const c10::TypePtr type = without_optional(argument.type());
    const bool is_number = value.isInt() || value.isDouble() || value.isBool();
    if (type->kind() == c10::TypeKind::TensorType && is_number) return wrapped(value);
    if (type->kind() == c10::TypeKind::FloatType && value.isInt())
        return static_cast<double>(value.toInt());
    if (type->kind() != c10::TypeKind::ListType) return value;
    const auto element = type->expect<c10::ListType>()->getElementType()->kind();
    if (value.isInt() && argument.N())
        return Numbers(static_cast<std::size_t>(*argument.N()), value.toInt());
    if (element == c10::TypeKind::FloatType && value.isIntList()) {
        c10::List<double> reals;
        for (const std::int64_t one : value.toIntVector())
            reals.push_back(static_cast<double>(one));
        return reals;
    }
    return value;
}

// Compiles one program; members are for all its functions.
class ProgramCompiler {
  public:
    ProgramCompiler(const ProgramFile& file, const std::vector<at::Tensor>& tensors)
        : file_(file), path_(file.zip.path()), tensors_(tensors) {}

    ProgramGraph compile() && {
        graph_.changes.resize(tensors_.size());
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            const SlotIndex slot = new_slot(file_.tensors[i].value);
            graph_.start.back() = tensors_[i];
            roots_[slot] = file_.tensors[i].same_as;
        }
        for (const ProgramInput& input : file_.inputs)
            graph_.inputs.push_back(new_slot(input.value));
        for (const Json& node : file_.nodes) add(node);
        graph_.output = slot_of(file_.outputs.front());
        for (const ProgramUpdate& update : file_.updates) {
            graph_.updates.emplace_back(slot_of(update.value), tensors_[update.tensor]);
            note_write(file_.tensors[update.tensor].same_as, "");
        }
        check_was_for_training();
        drop_unread_numbers();
        note_last_uses();
        return std::move(graph_);
    }

  private:
    SlotIndex new_slot(const std::string& value) {
        slots_[value] = graph_.start.size();
        graph_.start.emplace_back();
        roots_.emplace_back();
        return graph_.start.size() - 1;
    }

    SlotIndex slot_of(const std::string& value) const {
        const auto found = slots_.find(value);
        check(found != slots_.end(), [&] {
            return damaged_program(
                path_, fmt::format("a value '{}' is used before it is computed", printable(value)));
        });
        return found->second;
    }

    ProgramRefusal refused(const std::string& why, const std::string& fix) const {
        return {"E250",
                fmt::format("'{}' is no model for this program", printable(path_.string())),
                why,
                fix};
    }

    static std::string came_from(const std::string& line) {
        return line.empty() ? "" : fmt::format("; it comes from {}", line);
    }

    void add(const Json& node) {
        const auto target = node["target"].get<std::string>();
        constexpr std::string_view library = "torch.ops.aten.";
        if (target.starts_with("torch.ops.aten._assert") ||
            target.starts_with("torch.ops.aten.sym_constrain"))
            return;  // of ranges, which are checked for each input
        ProgramCall call;
        call.line = source_line(node);
        if ((call.number = number_operation(target)) != nullptr) {
            call.name = target;
            add_number(node, std::move(call));
            return;
        }
        check(!target.starts_with("torch.ops.higher_order."), [&] {
            return refused(
                fmt::format("its graph has the operator {}, which runs a part of the graph{}",
                            printable(target.substr(10)),
                            came_from(call.line)),
                "write that place without torch.cond, loops over data, no_grad() and autocast (for "
                "example with torch.where() or detach()), and export it again");
        });
        const std::size_t dot = target.rfind('.');
        if (target.starts_with(library) && dot >= library.size()) {
            call.name = "aten::" + target.substr(library.size(), dot - library.size());
            std::string overload = target.substr(dot + 1);
            if (overload == "default") overload.clear();
            call.op = c10::Dispatcher::singleton().findSchema({call.name, overload});
        }
        check(call.op && std::ranges::find(forbidden, call.name) == std::end(forbidden), [&] {
            return refused(
                fmt::format("its graph has '{}', which is no operator of LibTorch " TORCH_VERSION
                            "{}",
                            printable(target),
                            came_from(call.line)),
                "write that place with operators of PyTorch, and export it again");
        });
        add_operator(node, std::move(call));
    }

    void add_number(const Json& node, ProgramCall call) {
        for (const Json& input : node["inputs"])
            add_argument(call, call.arguments.size(), input["arg"], nullptr);
        add_results(node, call);
        graph_.calls.push_back(std::move(call));
    }

    void add_operator(const Json& node, ProgramCall call) {
        std::map<std::string, const Json*> given;
        for (const Json& input : node["inputs"])
            given[input["name"].get<std::string>()] = &input["arg"];
        const std::vector<c10::Argument>& wanted = call.op->schema().arguments();
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const auto found = given.find(wanted[i].name());
            if (found != given.end())
                add_argument(call, i, *found->second, &wanted[i]);
            else
                call.arguments.push_back(wanted[i].default_value().value_or(c10::IValue()));
            if (call.arguments.back().isDevice()) call.device = i;
        }
        add_results(node, call);
        note_writes(call);
        note_switch(call);
        graph_.calls.push_back(std::move(call));
    }

    void add_argument(ProgramCall& call,
                      std::size_t place,
                      const Json& json,
                      const c10::Argument* wanted) {
        const auto& [kind, about] = only_member(json);
        Feed feed{.argument = place};
        call.arguments.emplace_back();
        if (takes_slots(kind, about, feed)) {
            const bool wants_tensor =
                wanted != nullptr &&
                without_optional(wanted->type())->kind() == c10::TypeKind::TensorType;
            if (feed.kind == FeedKind::value && wants_tensor) feed.kind = FeedKind::tensor;
            call.feeds.push_back(std::move(feed));
            return;
        }
        c10::IValue value = constant_of(kind, about, call);
        call.arguments.back() = wanted == nullptr ? value : fitted(std::move(value), *wanted);
    }

    // Whether the argument is, or has, values of earlier calls: then `feed` has their slots.
    bool takes_slots(const std::string& kind, const Json& about, Feed& feed) const {
        const auto named = [&](const Json& json, const char* key) {
            feed.slots.emplace_back(slot_of(json[key].get<std::string>()));
        };
        if (kind == "as_tensor") {
            named(about, "name");
        } else if (kind == "as_tensors") {
            feed.kind = FeedKind::tensors;
            for (const Json& one : about) named(one, "name");
        } else if (kind == "as_optional_tensor" && about.contains("as_tensor")) {
            named(about["as_tensor"], "name");
        } else if (kind == "as_optional_tensors") {
            feed.kind = FeedKind::optional_tensors;
            for (const Json& one : about)
                if (one.contains("as_tensor"))
                    named(one["as_tensor"], "name");
                else
                    feed.slots.emplace_back();
        } else if (kind == "as_sym_ints") {
            feed.kind = FeedKind::numbers;
            for (const Json& one : about) {
                const bool is_named = one.contains("as_name");
                feed.numbers.push_back(is_named ? 0 : one["as_int"].get<std::int64_t>());
                if (is_named)
                    named(one, "as_name");
                else
                    feed.slots.emplace_back();
            }
        } else if (kind.starts_with("as_sym_") && about.contains("as_name")) {
            named(about, "as_name");
        } else {
            return false;
        }
        return true;
    }

    c10::IValue constant_of(const std::string& kind, const Json& about, const ProgramCall& call) {
        if (kind == "as_none" || kind == "as_optional_tensor") return {};
        if (kind == "as_int") return about.get<std::int64_t>();
        if (kind == "as_ints") return list_of<std::int64_t>(about);
        if (kind == "as_float") return real_of(about);
        if (kind == "as_floats") return reals_of(about);
        if (kind == "as_bool") return about.get<bool>();
        if (kind == "as_bools") return list_of<bool>(about);
        if (kind == "as_string") return about.get<std::string>();
        if (kind == "as_sym_int") return about["as_int"].get<std::int64_t>();
        if (kind == "as_sym_float") return real_of(about["as_float"]);
        if (kind == "as_sym_bool") return about["as_bool"].get<bool>();
        if (kind == "as_scalar_type")
            return static_cast<std::int64_t>(scalar_type_of(about.get<int>()));
        if (kind == "as_memory_format") return memory_format_of(about);
        if (kind == "as_layout") return static_cast<std::int64_t>(at::kStrided);
        if (kind == "as_device") return at::Device(at::kCPU);
        if (kind == "as_complex")
            return c10::complex<double>(real_of(about["real"]), real_of(about["imag"]));
        throw refused(fmt::format("{} has an argument of kind {}{}",
                                  call.name,
                                  printable(kind),
                                  came_from(call.line)),
                      "write that place in another way, and export it again");
    }

    void add_results(const Json& node, ProgramCall& call) {
        const Json& outputs = node["outputs"];
        const auto add_one = [&](const Json& about, const char* key) {
            call.results.emplace_back(new_slot(about[key].get<std::string>()));
        };
        for (const Json& output : outputs) {
            const auto& [kind, about] = only_member(output);
            if (kind == "as_tensors") {
                check(outputs.size() == 1,
                      [&] { return damaged_program(path_, call.name + " gives lists and more"); });
                call.gives_list = true;
                for (const Json& one : about) add_one(one, "name");
            } else if (kind == "as_tensor") {
                add_one(about, "name");
            } else if (kind.starts_with("as_sym_")) {
                add_one(about, "as_name");
            } else {
                call.results.emplace_back();
            }
        }
    }

    void note_write(std::optional<std::size_t> tensor, const std::string& line) {
        if (!tensor) return;
        const ProgramTensor& written = file_.tensors[*tensor];
        check(written.role != ProgramRole::parameter, [&] {
            return refused(
                fmt::format(
                    "it writes the parameter '{}' in forward(){}", written.name, came_from(line)),
                "make it a buffer, or leave the writing out, and export it again");
        });
        graph_.changes[*tensor] = true;
    }

    // What a call writes is what an argument is a view of. Results may be views, too.
    void note_writes(const ProgramCall& call) {
        const auto& schema = call.op->schema();
        const bool is_silent =
            std::ranges::find(silent_writers, call.name) != std::end(silent_writers);
        for (const Feed& feed : call.feeds) {
            const c10::Argument& argument = schema.arguments()[feed.argument];
            const c10::AliasInfo* alias = argument.alias_info();
            const bool is_statistic = is_silent && argument.name().starts_with("running_");
            for (const auto& slot : feed.slots) {
                if (!slot || !roots_[*slot]) continue;
                if (is_statistic || (alias != nullptr && alias->isWrite()))
                    note_write(roots_[*slot], call.line);
                if (alias != nullptr) note_views(call, *alias, *roots_[*slot]);
            }
        }
    }

    void note_views(const ProgramCall& call, const c10::AliasInfo& of, std::size_t tensor) {
        const auto& returns = call.op->schema().returns();
        for (std::size_t i = 0; i < call.results.size(); ++i) {
            const auto* alias =
                returns[call.gives_list ? 0 : std::min(i, returns.size() - 1)].alias_info();
            const bool is_view = alias != nullptr && (alias->beforeSets() == of.beforeSets() ||
                                                      !alias->containedTypes().empty());
            if (is_view && call.results[i]) roots_[*call.results[i]] = tensor;
        }
    }

    void note_switch(ProgramCall& call) {
        const auto& schema = call.op->schema();
        count_batches(call);
        const ModeSwitch* rule = switch_of(call.name);
        const auto place = rule == nullptr
                               ? std::optional<int>()
                               : schema.argumentIndexWithName(std::string(rule->argument));
        if (!place) return;
        const auto index = static_cast<std::size_t>(*place);
        const c10::IValue& flag = call.arguments[index];
        const bool is_on = flag.isDouble() ? flag.toDouble() > 0 : !flag.isBool() || flag.toBool();
        if (flag.isDouble())
            call.in_evaluation.emplace(index, 0.0);
        else if (rule->condition != "running_mean" || meets(call, *rule))
            call.in_evaluation.emplace(index, false);
        if (!meets(call, *rule)) return;
        (is_on ? on_ : off_).push_back(call.line.empty() ? call.name : call.line);
    }

    static bool meets(const ProgramCall& call, const ModeSwitch& rule) {
        if (rule.condition.empty()) return true;
        const auto place = call.op->schema().argumentIndexWithName(std::string(rule.condition));
        if (!place) return false;
        const auto index = static_cast<std::size_t>(*place);
        const c10::IValue& value = call.arguments[index];
        return (value.isDouble() && value.toDouble() > 0) ||
               std::ranges::find(call.feeds, index, &Feed::argument) != call.feeds.end();
    }

    // Batch norm counts its batches in training alone.
    void count_batches(ProgramCall& call) const {
        if (call.name != "aten::add_" || call.feeds.empty() || call.feeds.front().argument != 0)
            return;
        const auto root = roots_[*call.feeds.front().slots.front()];
        call.trains_only = root && file_.tensors[*root].name.ends_with("num_batches_tracked");
    }

    void check_was_for_training() const {
        check(off_.empty() || !on_.empty(), [&] {
            return ProgramRefusal(
                "E250",
                fmt::format("'{}' was exported for evaluation", printable(path_.string())),
                fmt::format("its dropout or batch norm is switched off: {}", off_.front()),
                "call net.train() before torch.export.export(), and export it again");
        });
    }

    // Sizes that only a check wanted. A later one may be all that an earlier one is for.
    void drop_unread_numbers() {
        std::vector<std::int64_t> readers(graph_.start.size());
        const auto count = [&](const ProgramCall& call, std::int64_t change) {
            for (const Feed& feed : call.feeds)
                for (const auto& slot : feed.slots)
                    if (slot) readers[*slot] += change;
        };
        for (const ProgramCall& call : graph_.calls) count(call, 1);
        readers[graph_.output] += 1;
        for (const auto& [slot, buffer] : graph_.updates) readers[slot] += 1;
        std::vector<bool> is_dropped(graph_.calls.size());
        for (std::size_t i = graph_.calls.size(); i-- > 0;) {
            const ProgramCall& call = graph_.calls[i];
            if (call.number == nullptr) continue;
            is_dropped[i] = std::ranges::none_of(
                call.results, [&](const auto& slot) { return slot && readers[*slot] > 0; });
            if (is_dropped[i]) count(call, -1);
        }
        std::size_t i = 0;
        std::erase_if(graph_.calls, [&](const ProgramCall&) { return is_dropped[i++]; });
    }

    void note_last_uses() {
        std::vector<bool> is_noted(graph_.start.size());
        is_noted[graph_.output] = true;
        for (const auto& [slot, buffer] : graph_.updates) is_noted[slot] = true;
        for (std::size_t i = graph_.calls.size(); i-- > 0;) {
            ProgramCall& call = graph_.calls[i];
            const auto note = [&](const std::optional<SlotIndex>& slot) {
                if (!slot || is_noted[*slot]) return;
                is_noted[*slot] = true;
                call.last_uses.push_back(*slot);
            };
            std::ranges::for_each(call.results, note);
            for (const Feed& feed : call.feeds) std::ranges::for_each(feed.slots, note);
        }
    }

    const ProgramFile& file_;
    std::filesystem::path path_;
    const std::vector<at::Tensor>& tensors_;
    ProgramGraph graph_;
    std::map<std::string, SlotIndex> slots_;
    std::vector<std::optional<std::size_t>> roots_;  ///< by slot: the tensor that it is a view of
    std::vector<std::string> on_, off_;              ///< lines of operators, by their mode
};

c10::IValue fed(const Feed& feed, const std::vector<c10::IValue>& slots) {
    switch (feed.kind) {
        case FeedKind::value:
            return slots[*feed.slots.front()];
        case FeedKind::tensor: {
            const c10::IValue& value = slots[*feed.slots.front()];
            return value.isTensor() ? value : wrapped(value);
        }
        case FeedKind::tensors: {
            c10::List<at::Tensor> list;
            list.reserve(feed.slots.size());
            for (const auto& slot : feed.slots) list.push_back(slots[*slot].toTensor());
            return list;
        }
        case FeedKind::optional_tensors: {
            c10::List<std::optional<at::Tensor>> list;
            list.reserve(feed.slots.size());
            for (const auto& slot : feed.slots)
                list.push_back(slot ? std::optional(slots[*slot].toTensor()) : std::nullopt);
            return list;
        }
        case FeedKind::numbers: {
            c10::List<std::int64_t> list;
            list.reserve(feed.slots.size());
            for (std::size_t i = 0; i < feed.slots.size(); ++i)
                list.push_back(feed.slots[i] ? slots[*feed.slots[i]].toInt() : feed.numbers[i]);
            return list;
        }
    }
    return {};
}

void give_results(const ProgramCall& call,
                  torch::jit::Stack& stack,
                  std::vector<c10::IValue>& slots) {
    if (call.gives_list) {
        const std::vector<at::Tensor> list = stack.at(0).toTensorVector();
        for (std::size_t i = 0; i < call.results.size(); ++i) slots[*call.results[i]] = list.at(i);
        return;
    }
    for (std::size_t i = 0; i < call.results.size(); ++i)
        if (call.results[i]) slots[*call.results[i]] = std::move(stack.at(i));
}

void run_call(const ProgramCall& call,
              ModelMode mode,
              at::Device device,
              std::vector<c10::IValue>& slots) {
    torch::jit::Stack stack = call.arguments;
    for (const Feed& feed : call.feeds) stack[feed.argument] = fed(feed, slots);
    if (call.device) stack[*call.device] = device;
    if (mode == ModelMode::evaluate && call.in_evaluation)
        stack[call.in_evaluation->first] = call.in_evaluation->second;
    if (mode == ModelMode::evaluate && call.trains_only)
        stack.resize(1);  // what it would have written
    else if (call.op)
        call.op->callBoxed(&stack);
    else
        stack = {call.number(stack)};
    give_results(call, stack, slots);
    for (const SlotIndex slot : call.last_uses) slots[slot] = {};
}

// With the place in the user's code, which LibTorch does not know.
[[noreturn]] void rethrow_with_place(const ProgramCall& call) {
    try {
        throw;
    } catch (const c10::OutOfMemoryError&) {
        throw;
    } catch (const std::exception& error) {
        throw_if_known(error);
        throw std::runtime_error(
            fmt::format("{} ({}{})",
                        reason_of(error),
                        call.name,
                        call.line.empty() ? "" : fmt::format(" of {}", call.line)));
    }
}

}  // namespace

at::ScalarType scalar_type_of(int number) {
    constexpr at::ScalarType types[] = {at::kByte,
                                        at::kChar,
                                        at::kShort,
                                        at::kInt,
                                        at::kLong,
                                        at::kHalf,
                                        at::kFloat,
                                        at::kDouble,
                                        at::kComplexHalf,
                                        at::kComplexFloat,
                                        at::kComplexDouble,
                                        at::kBool,
                                        at::kBFloat16};
    check(number >= 1 && number <= static_cast<int>(std::size(types)),
          [&] { return Error("E222", fmt::format("{} is no type of elements", number), "", ""); });
    return types[number - 1];
}

at::Tensor ProgramGraph::run(const std::vector<at::Tensor>& given, ModelMode mode) const {
    std::vector<c10::IValue> slots = start;
    for (std::size_t i = 0; i < inputs.size(); ++i) slots[inputs[i]] = given.at(i);
    const at::Device device = given.front().device();
    for (const ProgramCall& call : calls) {
        try {
            run_call(call, mode, device, slots);
        } catch (...) {
            rethrow_with_place(call);
        }
    }
    if (mode == ModelMode::train) {
        const at::NoGradGuard no_gradients;
        for (const auto& [slot, buffer] : updates) buffer.copy_(slots[slot].toTensor());
    }
    return slots[output].toTensor();
}

ProgramGraph compile_program(const ProgramFile& file, const std::vector<at::Tensor>& tensors) {
    return reading_program(file.zip.path(),
                           [&] { return ProgramCompiler(file, tensors).compile(); });
}

}  // namespace lockstep
