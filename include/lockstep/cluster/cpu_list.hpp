// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sets of CPUs in the kernel's notation.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns {0,1,2,3,8} for "0-3,8"; sorted, each CPU once. Returns nothing for other text.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// Returns "0-3,8" for {0,1,2,3,8}; "-" for none.
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace lockstep
