// SPDX-License-Identifier: Apache-2.0
// Tested: train/program/program_graph_test.cpp, train/program/program_peer (against Python's bits).

#include "program/program_graph.hpp"

#include "lockstep/core/error.hpp"

#include "model/built_in.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

double real_of(const Json& json) {
    if (!json.is_string()) return json.get<double>();
    const auto text = json.get<std::string>();
    if (text == "Infinity") return HUGE_VAL;
    if (text == "-Infinity") return -HUGE_VAL;
    check(text == "NaN", "E222", "'" + text + "' is no number");
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

c10::TypePtr without_optional(c10::TypePtr type) {
    if (const auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
    return type;
}

// A number for an operator that requires a tensor, whose type the other arguments decide, as in
// Python.
c10::IValue wrapped_number(const c10::IValue& number) {
    const auto type = number.isInt() ? at::kLong : number.isBool() ? at::kBool : at::kDouble;
    at::Tensor tensor = at::scalar_tensor(number.toScalar(), at::TensorOptions().dtype(type));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
}

c10::IValue fed(const Feed& feed, const std::vector<c10::IValue>& slots) {
    switch (feed.kind) {
        case FeedKind::value:
            return slots[*feed.slots.front()];
        case FeedKind::tensor: {
            const c10::IValue& value = slots[*feed.slots.front()];
            return value.isTensor() ? value : wrapped_number(value);
        }
        case FeedKind::tensors: {
            c10::List<at::Tensor> list;
            for (const auto& slot : feed.slots) list.push_back(slots[*slot].toTensor());
            return list;
        }
        case FeedKind::optional_tensors: {
            c10::List<std::optional<at::Tensor>> list;
            for (const auto& slot : feed.slots)
                list.push_back(slot ? std::optional(slots[*slot].toTensor()) : std::nullopt);
            return list;
        }
        case FeedKind::numbers: {
            c10::List<std::int64_t> list;
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

// Images have channels innermost in memory, and so have the outputs of kernels that take them. At
// the export they were contiguous.
c10::IValue with_exported_strides(const ProgramCall& call, const at::Tensor& tensor) {
    if (tensor.is_contiguous() || !tensor.is_contiguous(tensor.suggest_memory_format()))
        return tensor;
    if (!call.may_copy)
        throw std::runtime_error(
            "the memory that it reads is written: give it x.clone(memory_format="
            "torch.contiguous_format)");
    return tensor.contiguous();
}

void run_call(const ProgramCall& call,
              ModelMode mode,
              at::Device device,
              std::vector<c10::IValue>& slots) {
    RECORD_USER_SCOPE(call.module);  // for whom it counts in a profile
    torch::jit::Stack stack = call.arguments;
    for (const Feed& feed : call.feeds) stack[feed.argument] = fed(feed, slots);
    if (call.takes_strides) stack[0] = with_exported_strides(call, stack[0].toTensor());
    if (call.device) stack[*call.device] = device;
    if (mode == ModelMode::evaluate && call.in_evaluation)
        stack[call.in_evaluation->first] = call.in_evaluation->second;
    if (call.of_batch && stack[*call.of_batch].toBool())
        models::check_has_statistics(stack[0].toTensor());
    std::optional<at::AutoGradMode> gradients;
    if (call.gradients) gradients.emplace(*call.gradients && at::GradMode::is_enabled());
    if (mode == ModelMode::evaluate && call.trains_only)
        stack.resize(1);  // the tensor that the call would write
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

bool wants_tensor(const c10::Argument& argument) {
    return without_optional(argument.type())->kind() == c10::TypeKind::TensorType;
}

c10::IValue fitted_argument(c10::IValue value, const c10::Argument& argument) {
    const c10::TypePtr type = without_optional(argument.type());
    const bool is_number = value.isInt() || value.isDouble() || value.isBool();
    if (type->kind() == c10::TypeKind::TensorType && is_number) return wrapped_number(value);
    if (type->kind() == c10::TypeKind::FloatType && value.isInt())
        return static_cast<double>(value.toInt());
    if (type->kind() != c10::TypeKind::ListType) return value;
    const auto element = type->expect<c10::ListType>()->getElementType()->kind();
    if (value.isInt() && argument.N())
        return std::vector<std::int64_t>(static_cast<std::size_t>(*argument.N()), value.toInt());
    if (element == c10::TypeKind::FloatType && value.isIntList()) {
        c10::List<double> reals;
        for (const std::int64_t one : value.toIntVector())
            reals.push_back(static_cast<double>(one));
        return reals;
    }
    return value;
}

std::optional<c10::IValue> constant_argument(const std::string& kind, const Json& about) {
    if (kind == "as_none" || kind == "as_optional_tensor") return c10::IValue();
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
    return {};
}

at::ScalarType scalar_type_of(int number) {
    // LibTorch's own numbers plus one, but for bf16, which has those of quantized types before it.
    constexpr int last_alike = static_cast<int>(at::kBool) + 1, bf16 = last_alike + 1;
    check(number >= 1 && number <= bf16, "E222", fmt::format("{} is no type of elements", number));
    return number == bf16 ? at::kBFloat16 : static_cast<at::ScalarType>(number - 1);
}

std::vector<at::Tensor> ProgramGraph::run(const std::vector<at::Tensor>& given,
                                          ModelMode mode) const {
    std::vector<c10::IValue> slots = start;
    for (std::size_t i = 0; i < inputs.size(); ++i) slots[inputs[i]] = given.at(i);
    for (const SlotIndex slot : copied) slots[slot] = slots[slot].toTensor().clone();
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
    std::vector<at::Tensor> results;
    for (const SlotIndex slot : outputs) results.push_back(slots[slot].toTensor());
    return results;
}

}  // namespace lockstep
