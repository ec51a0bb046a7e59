// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which vector instructions a processor has, and the words that libraries have for them.
#pragma once

#include <optional>
#include <string_view>

namespace lockstep {

/// Levels of x86 vector instructions that change results or speed; each includes those before. The
/// last two multiply numbers of 16 bits.
enum class InstructionSet { basic, avx2, avx512, avx512_bf16, amx };

/// "default", "avx2", "avx512", "avx512-bf16", "amx".
std::string_view instruction_set_name(InstructionSet level);

/// ATen's word, as in ATEN_CPU_CAPABILITY: "default", "avx2", "avx512".
std::string_view aten_capability(InstructionSet level);

/// oneDNN's word, as in ONEDNN_MAX_CPU_ISA: "SSE41", "AVX2", "AVX512_CORE", ...
std::string_view onednn_isa_name(InstructionSet level);

/// The level that instruction_set_name() calls `name`, or nothing.
std::optional<InstructionSet> parse_instruction_set(std::string_view name);

/// The best level that the flags of /proc/cpuinfo allow.
InstructionSet best_instruction_set(std::string_view cpu_flags);

}  // namespace lockstep
