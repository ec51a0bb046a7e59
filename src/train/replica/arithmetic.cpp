// SPDX-License-Identifier: Apache-2.0
// oneDNN, MKL and ATen divide work among the requested threads. If OpenMP gives a region fewer,
// oneDNN 3.x leaves the missing threads' part of a convolution's weight gradient unwritten. So the
// team is counted before each leaf, by a region of LibTorch's own runtime.

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

#include "replica/numerics.hpp"

#include <array>
#include <cfenv>
#include <cstdlib>
#include <limits>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

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
    const auto tunables = Environment().text("GLIBC_TUNABLES");
    check(!tunables || tunables->find("glibc.cpu") == tunables->npos, [&] {
        return Error("E709",
                     fmt::format("GLIBC_TUNABLES is '{}'", *tunables),
                     "it chooses the C library's kernels, whose last bits differ",
                     "unset GLIBC_TUNABLES");
    });
}

}  // namespace

std::vector<std::string> forget_kernel_variables() {
    check_tunables();
    std::vector<std::string> notes;
    for (const char* name : kernel_variables) {
        const auto value = Environment().text(name);
        if (!value) continue;
        notes.push_back(
            fmt::format("{}={} is ignored: it could decide the run's bits", name, *value));
        ::unsetenv(name);
    }
    return notes;
}

void check_arithmetic(int threads) {
    check_team(threads);
    check_rounding();
}

}  // namespace lockstep
