// SPDX-License-Identifier: Apache-2.0
/// @file
/// The vector instructions of a processor, and the names that libraries give them.
#pragma once

#include <optional>
#include <string_view>

namespace lockstep {

/// Levels of x86 vector instructions that change results or speed; each includes those before it.
/// The last two multiply 16-bit numbers.
enum class InstructionSet { basic, avx2, avx512, avx512_bf16, amx };

/// Returns "default", "avx2", "avx512", "avx512-bf16" or "amx".
std::string_view instruction_set_name(InstructionSet level);

/// Returns ATen's name, as in ATEN_CPU_CAPABILITY: "default", "avx2", "avx512".
std::string_view aten_capability(InstructionSet level);

/// Returns oneDNN's name, as in ONEDNN_MAX_CPU_ISA: "SSE41", "AVX2", "AVX512_CORE", ...
std::string_view onednn_isa_name(InstructionSet level);

/// Returns the level that instruction_set_name() calls `name`, or nothing.
std::optional<InstructionSet> parse_instruction_set(std::string_view name);

/// Returns the best level that the flags of /proc/cpuinfo allow.
InstructionSet best_instruction_set(std::string_view cpu_flags);

}  // namespace lockstep
