// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/version.hpp"

#include "nccl/cuda_api.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

namespace lockstep {
namespace {

constexpr const char* library_name = "liblockstep_cuda.so";

template <class Function>
Function function_of(const SharedLibrary& library, const char* name) {
    return reinterpret_cast<Function>(function_in(library, name));
}

void check_same_version(const std::string& path, const std::string& theirs) {
    check(theirs == version_text(), [&] {
        return Error("E670",
                     fmt::format("'{}' is of Lockstep {}, not {}", path, theirs, version_text()),
                     "both exchange C++ values",
                     "reinstall Lockstep, or unset LOCKSTEP_CUDA_LIB");
    });
}

std::string real_path(const char* path) {
    std::error_code failed;
    const auto real = std::filesystem::canonical(path, failed);
    return failed ? path : real.string();
}

}  // namespace

void check_cuda(const CudaApi& api, CudaApi::Status status, const char* call) {
    check(status != CudaApi::out_of_memory, [&] {
        return Error(
            "E696",
            fmt::format("{} failed: {}", call, api.error_text(status)),
            "weights, gradients and optimizer state of this model do not fit into the memory that "
            "other processes leave",
            "nvidia-smi shows which processes use it; use more ranks, or a GPU with more memory");
    });
    check(status == CudaApi::success, [&] {
        return Error("E681",
                     fmt::format("{} failed: {}", call, api.error_text(status)),
                     fmt::format("cudaError {}", status),
                     "nvidia-smi and the kernel's log (dmesg, 'NVRM: Xid') say whether the GPU is "
                     "well; start the same command again to resume");
    });
}

void* function_in(const SharedLibrary& library, const char* name) {
    void* address = library.symbol(name);
    check(address != nullptr, [&] {
        return Error("E670",
                     fmt::format("'{}' is not Lockstep's GPU library", library.path()),
                     fmt::format("it has no function {}", name),
                     "reinstall Lockstep, or unset LOCKSTEP_CUDA_LIB");
    });
    return address;
}

std::string cuda_library_path() {
    return Environment().text("LOCKSTEP_CUDA_LIB").value_or(own_library(library_name));
}

std::string gpu_driver_fault() {
    std::string reason;
    return SharedLibrary::open("libcuda.so.1", reason) ? "" : reason;
}

CudaLibrary load_cuda() {
    const std::string missing = gpu_driver_fault();
    check(missing.empty(), [&] {
        return Error("E670",
                     "this machine has no GPU driver",
                     missing,
                     "run on a node with an NVIDIA GPU; in a container, pass the GPUs through "
                     "(docker --gpus all, apptainer --nv)");
    });
    CudaLibrary result;
    std::string reason;
    result.path = cuda_library_path();
    result.library = SharedLibrary::open(result.path, reason);
    check(static_cast<bool>(result.library), [&] {
        return Error(
            "E670",
            fmt::format("'{}' cannot be loaded", result.path),
            reason,
            "this Lockstep was built without CUDA, or its lib folder was not copied along; "
            "LOCKSTEP_CUDA_LIB names the file");
    });
    const auto version = function_of<const char* (*)()>(result.library, "lockstep_cuda_version");
    check_same_version(result.path, version());
    function_of<void (*)(CudaApi*)>(result.library, "lockstep_cuda_fill")(&result.api);
    return result;
}

SharedLibrary::~SharedLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
}

SharedLibrary SharedLibrary::open(const std::string& name, std::string& reason) {
    // Threads of such a library (NCCL's RAS) outlive its last user: its code must stay.
    SharedLibrary library(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
    if (!library) {
        const char* text = ::dlerror();
        reason = text == nullptr ? "the loader gives no reason" : text;
    }
    return library;
}

SharedLibrary SharedLibrary::already_loaded(const std::string& name) {
    return SharedLibrary(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
}

void* SharedLibrary::symbol(const char* name) const {
    return ::dlsym(handle_, name);
}

std::string SharedLibrary::path() const {
    link_map* map = nullptr;
    if (::dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return {};
    return real_path(map->l_name);
}

std::vector<std::string> loaded_libraries(const std::string& prefix) {
    struct Search {
        const std::string& prefix;
        std::vector<std::string> found;
    } search{prefix, {}};
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& mine = *static_cast<Search*>(data);
            const std::string path = real_path(info->dlpi_name);
            if (std::filesystem::path(path).filename().string().starts_with(mine.prefix))
                mine.found.push_back(path);
            return 0;
        },
        &search);
    std::ranges::sort(search.found);
    const auto repeated = std::ranges::unique(search.found);
    search.found.erase(repeated.begin(), repeated.end());
    return search.found;
}

}  // namespace lockstep
