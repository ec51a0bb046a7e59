// SPDX-License-Identifier: Apache-2.0
#include "replica/numerics.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <malloc.h>

namespace lockstep {
namespace {

// MKL's conditional numerical reproducibility; "COMPATIBLE" is the one that every x86 has. STRICT:
// matrices' alignment and threads do not matter either.
const char* mkl_branch(InstructionSet level) {
    if (level >= InstructionSet::avx512) return "AVX512,STRICT";
    return level == InstructionSet::avx2 ? "AVX2,STRICT" : "COMPATIBLE";
}

InstructionSet agree_instruction_set(const Communicator& ranks,
                                     InstructionSet mine,
                                     const TrainSettings& settings) {
    const auto wanted = settings.instruction_set;
    std::int64_t least = -static_cast<std::int64_t>(mine);
    ranks.all_reduce_max(std::span(&least, 1));
    if (!wanted) return std::min(static_cast<InstructionSet>(-least), most_useful(settings));
    agree(ranks, [&] {
        check(*wanted <= mine, [&] {
            return Error("E702",
                         fmt::format("this processor lacks {}", instruction_set_name(*wanted)),
                         fmt::format("it has {}; the run's bits are tied to {}",
                                     instruction_set_name(mine),
                                     instruction_set_name(*wanted)),
                         "use nodes that have it (sbatch --constraint), or create the run anew "
                         "with --isa " +
                             std::string(instruction_set_name(mine)));
        });
    });
    return *wanted;
}

void set_instruction_set(InstructionSet level) {
    ::setenv("ATEN_CPU_CAPABILITY", std::string(aten_capability(level)).c_str(), 1);
    ::setenv("ONEDNN_MAX_CPU_ISA", std::string(onednn_isa_name(level)).c_str(), 1);
    ::setenv("MKL_CBWR", mkl_branch(level), 1);
}

// Threads that one operator may use, and deterministic algorithms only.
void set_compute_threads(int threads, InstructionSet level) {
    at::set_num_threads(threads);
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);  // costs, changes no bit
    std::string chosen = at::get_cpu_capability();
    std::ranges::transform(chosen, chosen.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    check(chosen == aten_capability(level), [&] {
        return Error(
            "E700",
            fmt::format(
                "ATen computes with '{}', the run with '{}'", chosen, aten_capability(level)),
            "it was initialised before the ranks agreed",
            "please report this");
    });
}

}  // namespace

InstructionSet most_useful(const TrainSettings& settings) {
    return settings.instruction_set.value_or(
        has_16_bits(settings.precision) ? InstructionSet::amx : InstructionSet::avx512);
}

void settle_arithmetic(const Communicator& ranks, InstructionSet mine, TrainSettings& settings) {
    const InstructionSet level = agree_instruction_set(ranks, mine, settings);
    settings.instruction_set = level;
    agree(ranks, [&] {
        for (std::string& note : forget_kernel_variables())
            settings.warnings.push_back(std::move(note));
        set_instruction_set(level);
        set_compute_threads(settings.threads, level);
        check_arithmetic(settings.threads);
    });
    // By default the C library hands what a step frees back to the kernel, and each page of it
    // costs a fault in the next step: a fifth of the cnn's time.
    ::mallopt(M_MMAP_MAX, 0);
    ::mallopt(M_TRIM_THRESHOLD, -1);
}

}  // namespace lockstep
