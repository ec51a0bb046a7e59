// SPDX-License-Identifier: Apache-2.0
// This file is not linked with CUDA: LibTorch's own registries know CUDA once its library is
// loaded, and devices are accessed through c10's interfaces, which any device has.
#include "replica/torch_cuda.hpp"

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

#include <cstdlib>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* usual_name = "libtorch_cuda.so";

Error cannot_use(const std::string& what, const std::string& why) {
    return {"E694",
            what,
            why,
            "scripts/setup gpu installs what it needs; LD_LIBRARY_PATH names folders of a module's "
            "libraries; --device cpu trains without"};
}

// Before the first call of cuBLAS: https://docs.nvidia.com/cuda/cublas, "Results reproducibility".
void choose_workspace() {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
}

std::string loader_reason() {
    const char* const reason = ::dlerror();
    return reason == nullptr ? "the loader gives no reason" : reason;
}

// The choice of kernels depends on shapes alone, and none rounds to fewer bits.
void be_deterministic() {
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(true, false);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
    context.setAllowTF32CuDNN(false);
    context.setAllowTF32CuBLAS(false);
}

}  // namespace

void load_torch_cuda() {
    choose_workspace();
    const std::string name = Environment().text("LOCKSTEP_TORCH_CUDA_LIB").value_or(usual_name);
    // For good: its kernels are registered, and other libraries find its symbols.
    if (::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) == nullptr)
        throw cannot_use("LibTorch's CUDA part cannot be loaded", loader_reason());
    be_deterministic();
}

void allow_tf32() {
    at::globalContext().setAllowTF32CuDNN(true);
    at::globalContext().setAllowTF32CuBLAS(true);
}

MakeDeviceGraph load_device_graphs(const std::string& path, std::string& why_not) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, device_graph_entry_point);
    if (entry == nullptr) {
        why_not = loader_reason();
        return {};
    }
    return [make = reinterpret_cast<DeviceGraphEntryPoint>(entry)] {
        return std::unique_ptr<DeviceGraph>(make());
    };
}

std::string torch_cuda_text() {
    const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
    const long cuda = hooks.versionCUDART(), cudnn = hooks.versionRuntimeCuDNN();
    return fmt::format("CUDA {}.{}, cuDNN {}.{}.{}",
                       cuda / 1000,
                       cuda % 1000 / 10,
                       cudnn / 10000,
                       cudnn / 100 % 100,
                       cudnn % 100);
}

void use_torch_device(c10::Device device) {
    const at::CUDAHooksInterface& cuda = at::detail::getCUDAHooks();
    check(cuda.hasCUDA() && cuda.deviceCount() > device.index(), [] {
        return cannot_use("LibTorch's CUDA part finds no GPU",
                          "it is of another build, or counts "
                          "fewer than CUDA does");
    });
    try {
        at::globalContext().lazyInitDevice(device.type());
        c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
    } catch (const c10::Error& error) {
        throw cannot_use("LibTorch cannot use GPU " + std::to_string(device.index()),
                         error.what_without_backtrace());
    }
}

}  // namespace lockstep
