// SPDX-License-Identifier: Apache-2.0
// Tested: train/program/program_graph_test.cpp.
#include "program/program_arguments.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

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

c10::TypePtr without_optional(c10::TypePtr type) {
    if (const auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
    return type;
}

}  // namespace

c10::IValue wrapped_number(const c10::IValue& number) {
    const auto type = number.isInt() ? at::kLong : number.isBool() ? at::kBool : at::kDouble;
    at::Tensor tensor = at::scalar_tensor(number.toScalar(), at::TensorOptions().dtype(type));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
}

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

}  // namespace lockstep
