// SPDX-License-Identifier: Apache-2.0
// oneDNN, MKL and ATen divide work among the requested threads. If OpenMP gives a region fewer,
// oneDNN 3.x leaves the missing threads' part of a convolution's weight gradient unwritten. So the
// team is counted before each leaf, by a region of LibTorch's own runtime.
//
// Tested: e2e/numbers_test.cpp.

#include "replica/numerics.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdlib>
#include <limits>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

namespace lockstep {
namespace {

// Variables that choose kernels, or their precision, besides those that set_instruction_set() sets.
// Those of GPUs: docs/decisions/0020-kernels-of-cudnn.md.
constexpr std::array kernel_variables{"CUBLASLT_HEURISTICS_LUT_FILE",
                                      "CUBLASLT_WORKSPACE_SIZE",
                                      "CUBLAS_EMULATE_SINGLE_PRECISION",
                                      "CUBLAS_EMULATION_STRATEGY",
                                      "CUDNN_CONV_WSCAP_DBG",
                                      "CUDNN_ERRATA_JSON_FILE",
                                      "CUDNN_FORCE_JIT_DBG",
                                      "CUDNN_GA10X_SMEM_DBG",
                                      "CUDNN_JIT_FLAGS_DBG",
                                      "CUDNN_PREFER_SM_COUNT_DBG",
                                      "CUDNN_RNN_WS_SIZE_DBG",
                                      "CUDNN_SKIPHEUR_DBG",
                                      "CUDNN_STRICT_DBG",
                                      "DISABLE_ADDMM_CUDA_LT",
                                      "DNNL_CPU_ISA_HINTS",
                                      "DNNL_DEFAULT_FPMATH_MODE",
                                      "DNNL_MAX_CPU_ISA",
                                      "MKL_DISABLE_FAST_MM",
                                      "MKL_ENABLE_INSTRUCTIONS",
                                      "NVIDIA_TF32_OVERRIDE",
                                      "ONEDNN_CPU_ISA_HINTS",
                                      "ONEDNN_DEFAULT_FPMATH_MODE",
                                      "PYTORCH_TUNABLEOP_ENABLED",
                                      "TORCH_BLAS_PREFER_CUBLASLT",
                                      "TORCH_BLAS_PREFER_HIPBLASLT",
                                      "TORCH_CUDNN_SDPA_DEPRIORITIZED",
                                      "TORCH_CUDNN_USE_HEURISTIC_MODE_B",
                                      "TORCH_CUDNN_V8_API_DISABLED",
                                      "TORCH_LINALG_PREFER_CUSOLVER",
                                      "TORCH_LINALG_PREFER_HIPSOLVER",
                                      "TORCH_LINEAR_FLATTEN_3D",
                                      "TORCH_MKLDNN_MATMUL_MIN_DIM",
                                      "TORCH_MKLDNN_MATMUL_MIN_SIZE"};

// libgomp's interface, which Intel's runtime has, too (https://gcc.gnu.org/onlinedocs/libgomp/).
using Region = void (*)(void*);
using Parallel = void (*)(Region, void*, unsigned, unsigned);

template <class Function>
Function openmp_function(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

int team_size() {
    static const auto parallel = openmp_function<Parallel>("GOMP_parallel");
    static const auto size = openmp_function<int (*)()>("omp_get_num_threads");
    if (!parallel || !size) return 1;
    int team = 0;
    parallel([](void* count) { __atomic_fetch_add(static_cast<int*>(count), 1, __ATOMIC_RELAXED); },
             &team,
             0,
             0);
    return team;
}

// Returns the set variables that make teams smaller.
std::string limits_text() {
    const Environment environment;
    std::vector<std::string> set;
    for (const char* name : {"OMP_THREAD_LIMIT", "OMP_MAX_ACTIVE_LEVELS", "OMP_NESTED"})
        if (const auto value = environment.text(name))
            set.push_back(fmt::format("{}={}", name, *value));
    return set.empty() ? "nothing that is set in the environment says why"
                       : fmt::format("{} is set", fmt::join(set, ", "));
}

void check_team(int threads) {
    if (threads == 1) return;
    // For the computing thread's team, whatever OMP_DYNAMIC was when the runtime was loaded.
    static const auto set_dynamic = openmp_function<void (*)(int)>("omp_set_dynamic");
    if (set_dynamic) set_dynamic(0);
    const int team = team_size();
    check(team == threads, [&] {
        return Error("E706",
                     fmt::format("OpenMP gives {} of {} threads", team, threads),
                     limits_text() + "; kernels would leave results unwritten",
                     "unset it, or use --threads 1 in a new run");
    });
}

void check_rounding() {
    volatile float least_normal = std::numeric_limits<float>::min();
    volatile float least = std::numeric_limits<float>::denorm_min();
    const bool keeps_tiny = least_normal / 2 != 0 && least * 2 != 0;
    check(keeps_tiny && std::fegetround() == FE_TONEAREST, [&] {
        return Error("E708",
                     keeps_tiny ? "numbers are not rounded to nearest"
                                : "numbers below 1.2e-38 are flushed to zero",
                     "a library in this process changed how the processor computes; those compiled "
                     "with -ffast-math do when they are loaded",
                     "check LD_PRELOAD and the libraries that the program was linked with");
    });
}

// The C library chooses its kernels before main().
void check_tunables() {
    const std::string tunables = Environment().text("GLIBC_TUNABLES").value_or("");
    check(tunables.find("glibc.cpu") == tunables.npos,
          "E709",
          fmt::format("GLIBC_TUNABLES is '{}'", tunables),
          "it chooses the C library's kernels, whose last bits differ",
          "unset GLIBC_TUNABLES");
}

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
        check(*wanted <= mine,
              "E702",
              fmt::format("this processor lacks {}", instruction_set_name(*wanted)),
              fmt::format("it has {}; the run's bits are tied to {}",
                          instruction_set_name(mine),
                          instruction_set_name(*wanted)),
              "use nodes that have it (sbatch --constraint), or create the run anew with --isa " +
                  std::string(instruction_set_name(mine)));
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
    check(chosen == aten_capability(level),
          "E700",
          fmt::format("ATen computes with '{}', the run with '{}'", chosen, aten_capability(level)),
          "it was initialised before the ranks agreed",
          "please report this");
}

// With a warning for each that had a value.
void forget_kernel_variables(TrainSettings& settings) {
    check_tunables();
    for (const char* name : kernel_variables) {
        const auto value = Environment().text(name);
        if (!value) continue;
        settings.warnings.push_back(
            fmt::format("{}={} is ignored: it could decide the run's bits", name, *value));
        ::unsetenv(name);
    }
}

}  // namespace

void check_arithmetic(int threads) {
    check_team(threads);
    check_rounding();
}

InstructionSet most_useful(const TrainSettings& settings) {
    return settings.instruction_set.value_or(
        has_16_bits(settings.precision) ? InstructionSet::amx : InstructionSet::avx512);
}

void settle_arithmetic(const Communicator& ranks, InstructionSet mine, TrainSettings& settings) {
    const InstructionSet level = agree_instruction_set(ranks, mine, settings);
    settings.instruction_set = level;
    agree(ranks, [&] {
        forget_kernel_variables(settings);
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
