// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bucket_hook.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> names = {"f32", "bf16", "fp16", "powersgd"};

}  // namespace

std::string_view name_of(WireFormat format) {
    return names[static_cast<std::size_t>(format)];
}

std::optional<WireFormat> wire_format_named(std::string_view name) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return {};
    return static_cast<WireFormat>(found - names.begin());
}

void check_wire_format(WireFormat format, Summation summation) {
    const bool is_exact = format == WireFormat::float32;
    check(is_exact || summation == Summation::plain, [&] {
        return Error(
            "E641",
            fmt::format("gradients cannot travel as {} in an invariant run", name_of(format)),
            "lossy wire formats depend on the number of ranks",
            fmt::format("use --plain with --wire {}, or leave --wire f32", name_of(format)));
    });
}

}  // namespace lockstep
