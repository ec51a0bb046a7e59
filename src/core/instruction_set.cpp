// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/instruction_set.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

struct LevelNames {
    std::string_view name, aten, onednn;
    std::initializer_list<const char*>
        flags;  ///< flags of /proc/cpuinfo, besides those of lower levels
};
const std::array<LevelNames, 5> levels{{
    {"default", "default", "SSE41", {}},
    {"avx2", "avx2", "AVX2", {"avx2", "fma"}},
    {"avx512", "avx512", "AVX512_CORE", {"avx512f", "avx512bw", "avx512vl", "avx512dq"}},
    {"avx512-bf16", "avx512", "AVX512_CORE_BF16", {"avx512_vnni", "avx512_bf16"}},
    {"amx", "avx512", "AVX512_CORE_AMX", {"avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}},
}};

const LevelNames& names_of(InstructionSet level) {
    return levels.at(static_cast<std::size_t>(level));
}

}  // namespace

std::string_view instruction_set_name(InstructionSet level) {
    return names_of(level).name;
}

std::string_view aten_capability(InstructionSet level) {
    return names_of(level).aten;
}

std::string_view onednn_isa_name(InstructionSet level) {
    return names_of(level).onednn;
}

std::optional<InstructionSet> parse_instruction_set(std::string_view name) {
    const auto found = std::ranges::find(levels, name, &LevelNames::name);
    if (found == levels.end()) return {};
    return static_cast<InstructionSet>(found - levels.begin());
}

InstructionSet best_instruction_set(std::string_view cpu_flags) {
    std::istringstream words{std::string(cpu_flags)};
    const std::set<std::string, std::less<>> flags(std::istream_iterator<std::string>(words), {});
    const auto lacks = [&](const LevelNames& level) {
        return !std::ranges::all_of(level.flags,
                                    [&](const char* flag) { return flags.contains(flag); });
    };
    const auto first_lacking = std::ranges::find_if(levels, lacks);
    return static_cast<InstructionSet>(first_lacking - levels.begin() - 1);
}

}  // namespace lockstep
