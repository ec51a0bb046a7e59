// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/version.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/nccl_api.hpp"

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

std::string cuda_library_path() {
    return Environment().text("LOCKSTEP_CUDA_LIB").value_or(own_library(library_name));
}

void check_same_version(const std::string& path, const std::string& theirs) {
    check(theirs == version_text(),
          "E670",
          fmt::format("'{}' is of Lockstep {}, not {}", path, theirs, version_text()),
          "both exchange C++ values",
          "reinstall Lockstep, or unset LOCKSTEP_CUDA_LIB");
}

std::string real_path(const char* path) {
    std::error_code failed;
    const auto real = std::filesystem::canonical(path, failed);
    return failed ? path : real.string();
}

constexpr const char* default_name = "libnccl.so.2";
constexpr int oldest_version = 21400;  // ncclCommInitRankConfig and non-blocking communicators

template <class Function>
struct Signature;
template <class R, class... Args>
struct Signature<std::function<R(Args...)>> {
    using Pointer = R (*)(Args...);
};

/// Sets table members from symbols and remembers the required ones that are not there.
class Filler {
  public:
    explicit Filler(const SharedLibrary& library) : library_(library) {}

    template <class Function>
    void optional(Function& member, const char* symbol) {
        if (void* address = library_.symbol(symbol))
            member = reinterpret_cast<typename Signature<Function>::Pointer>(address);
    }
    template <class Function>
    void required(Function& member, const char* symbol) {
        optional(member, symbol);
        if (!member) missing_ += fmt::format("{}{}", missing_.empty() ? "" : ", ", symbol);
    }
    void check_complete() const {
        check(missing_.empty(), [&] {
            return Error("E671",
                         fmt::format("'{}' lacks {}", library_.path(), missing_),
                         "it is not NCCL, or older than 2.14",
                         "name another with LOCKSTEP_NCCL_LIB");
        });
    }

  private:
    const SharedLibrary& library_;
    std::string missing_;
};

SharedLibrary open_nccl(const std::string& name) {
    // LibTorch brings its own: two copies would each keep their own state of the same GPU.
    if (name == default_name)
        if (SharedLibrary loaded = SharedLibrary::already_loaded(name)) return loaded;
    std::string reason;
    SharedLibrary library = SharedLibrary::open(name, reason);
    check(static_cast<bool>(library),
          "E671",
          fmt::format("NCCL cannot be loaded from '{}'", name),
          reason,
          "install NCCL (it is part of LibTorch for CUDA), or name the file with "
          "LOCKSTEP_NCCL_LIB");
    return library;
}

void check_only_one() {
    const std::vector<std::string> loaded = loaded_libraries("libnccl.so");
    check(loaded.size() <= 1,
          "E672",
          fmt::format("two NCCL libraries in one process: {}", fmt::join(loaded, ", ")),
          "each would start its own threads and connections for the same GPU",
          "unset LOCKSTEP_NCCL_LIB, or name the first");
}

NcclApi nccl_functions_of(const SharedLibrary& library) {
    NcclApi api;
    Filler from(library);
    from.required(api.get_version, "ncclGetVersion");
    from.required(api.get_unique_id, "ncclGetUniqueId");
    from.required(api.get_error_string, "ncclGetErrorString");
    from.required(api.get_last_error, "ncclGetLastError");
    from.required(api.comm_init_rank_config, "ncclCommInitRankConfig");
    from.optional(api.comm_init_rank_scalable, "ncclCommInitRankScalable");
    from.required(api.comm_get_async_error, "ncclCommGetAsyncError");
    from.required(api.comm_finalize, "ncclCommFinalize");
    from.required(api.comm_destroy, "ncclCommDestroy");
    from.required(api.comm_abort, "ncclCommAbort");
    from.optional(api.comm_revoke, "ncclCommRevoke");
    from.required(api.group_start, "ncclGroupStart");
    from.required(api.group_end, "ncclGroupEnd");
    from.required(api.all_reduce, "ncclAllReduce");
    from.required(api.reduce, "ncclReduce");
    from.required(api.reduce_scatter, "ncclReduceScatter");
    from.required(api.all_gather, "ncclAllGather");
    from.required(api.send, "ncclSend");
    from.required(api.recv, "ncclRecv");
    from.optional(api.mem_alloc, "ncclMemAlloc");
    from.optional(api.mem_free, "ncclMemFree");
    from.optional(api.comm_register, "ncclCommRegister");
    from.optional(api.comm_deregister, "ncclCommDeregister");
    from.check_complete();
    return api;
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

std::string gpu_driver_fault() {
    std::string reason;
    return SharedLibrary::open("libcuda.so.1", reason) ? "" : reason;
}

CudaLibrary load_cuda() {
    const std::string missing = gpu_driver_fault();
    check(missing.empty(),
          "E670",
          "this machine has no GPU driver",
          missing,
          "run on a node with an NVIDIA GPU; in a container, pass the GPUs through "
          "(docker --gpus all, apptainer --nv)");
    CudaLibrary result;
    std::string reason;
    result.path = cuda_library_path();
    result.library = SharedLibrary::open(result.path, reason);
    check(static_cast<bool>(result.library),
          "E670",
          fmt::format("'{}' cannot be loaded", result.path),
          reason,
          "this Lockstep was built without CUDA, or its lib folder was not copied along; "
          "LOCKSTEP_CUDA_LIB names the file");
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

int NcclApi::version() const {
    int code = 0;
    return get_version(&code) == nccl::success ? code : 0;
}

std::string nccl_version_text(int code) {
    // Until 2.8 a version had one digit for the minor number (NCCL_VERSION in nccl.h).
    const int major = code < 10000 ? code / 1000 : code / 10000;
    const int minor = code < 10000 ? code / 100 % 10 : code / 100 % 100;
    return fmt::format("{}.{}.{}", major, minor, code % 100);
}

std::string NcclLibrary::text() const {
    return fmt::format("NCCL {} ({})", nccl_version_text(version), path);
}

NcclLibrary load_nccl(const std::string& path, const Environment& environment) {
    NcclLibrary result;
    result.library = open_nccl(
        path.empty() ? environment.text("LOCKSTEP_NCCL_LIB").value_or(default_name) : path);
    result.api = nccl_functions_of(result.library);
    result.path = result.library.path();
    result.version = result.api.version();
    check_only_one();
    check(result.version >= oldest_version,
          "E671",
          fmt::format("{} is too old", result.text()),
          "communicators can be aborted since NCCL 2.14",
          "name a newer one with LOCKSTEP_NCCL_LIB");
    return result;
}

GpuLibraries load_gpu_libraries(const std::string& nccl_path) {
    GpuLibraries found;
    found.own = cuda_library_path();
    SharedLibrary::open(found.own, found.own_fault);
    try {
        found.nccl = load_nccl(nccl_path).text();
    } catch (const Error& error) {
        found.nccl_fault = fmt::format("{} ({})", error.what(), error.why());
    }
    return found;
}

}  // namespace lockstep
