// SPDX-License-Identifier: Apache-2.0
// Tested: train/program/program_graph_test.cpp.
#include "program/program_graph.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace lockstep {
namespace {

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

std::int64_t fitting(bool overflows, std::int64_t result) {
    if (overflows) throw std::runtime_error("a size does not fit into 64 bits");
    return result;
}

std::int64_t divisor(std::int64_t value) {
    if (value == 0) throw std::runtime_error("division by zero");
    return value;
}

// Rounded down, as Python does.
std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
    if (divisor(b) == -1) return fitting(a == INT64_MIN, -a);
    return a / b - static_cast<std::int64_t>(a % b != 0 && (a < 0) != (b < 0));
}

c10::IValue add(const Values& v) {
    std::int64_t sum = 0;
    if (!are_whole(v)) return real(v[0]) + real(v[1]);
    const bool overflows = __builtin_add_overflow(whole(v[0]), whole(v[1]), &sum);
    return fitting(overflows, sum);
}

c10::IValue subtract(const Values& v) {
    std::int64_t rest = 0;
    if (!are_whole(v)) return real(v[0]) - real(v[1]);
    const bool overflows = __builtin_sub_overflow(whole(v[0]), whole(v[1]), &rest);
    return fitting(overflows, rest);
}

c10::IValue multiply(const Values& v) {
    std::int64_t product = 0;
    if (!are_whole(v)) return real(v[0]) * real(v[1]);
    const bool overflows = __builtin_mul_overflow(whole(v[0]), whole(v[1]), &product);
    return fitting(overflows, product);
}

c10::IValue floor_divide(const Values& v) {
    if (!are_whole(v)) return std::floor(real(v[0]) / real(v[1]));
    return floor_divided(whole(v[0]), whole(v[1]));
}

c10::IValue modulo(const Values& v) {
    if (!are_whole(v)) return real(v[0]) - real(v[1]) * std::floor(real(v[0]) / real(v[1]));
    const std::int64_t a = whole(v[0]), b = divisor(whole(v[1]));
    if (b == -1) return std::int64_t{0};
    const std::int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

c10::IValue divide(const Values& v) {
    return real(v[0]) / real(v[1]);
}

c10::IValue negate(const Values& v) {
    if (!are_whole(v)) return -real(v[0]);
    return fitting(whole(v[0]) == INT64_MIN, -whole(v[0]));
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
    {"_operator.add", taking<2, add>},
    {"_operator.sub", taking<2, subtract>},
    {"_operator.mul", taking<2, multiply>},
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

NumberOperation number_operation(std::string_view target) {
    const auto found = std::ranges::find(operations, target, &NamedOperation::name);
    return found == std::end(operations) ? nullptr : found->operation;
}

}  // namespace lockstep
