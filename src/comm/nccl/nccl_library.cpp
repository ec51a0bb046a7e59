// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "nccl/nccl_api.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

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

std::string chosen_name(const std::string& path, const Environment& environment) {
    if (!path.empty()) return path;
    return environment.text("LOCKSTEP_NCCL_LIB").value_or(default_name);
}

SharedLibrary open_nccl(const std::string& name) {
    // LibTorch brings its own: two copies would each keep their own state of the same GPU.
    if (name == default_name)
        if (SharedLibrary loaded = SharedLibrary::already_loaded(name)) return loaded;
    std::string reason;
    SharedLibrary library = SharedLibrary::open(name, reason);
    check(static_cast<bool>(library), [&] {
        return Error("E671",
                     fmt::format("NCCL cannot be loaded from '{}'", name),
                     reason,
                     "install NCCL (it is part of LibTorch for CUDA), or name the file with "
                     "LOCKSTEP_NCCL_LIB");
    });
    return library;
}

void check_only_one() {
    const std::vector<std::string> loaded = loaded_libraries("libnccl.so");
    check(loaded.size() <= 1, [&] {
        return Error("E672",
                     fmt::format("two NCCL libraries in one process: {}", fmt::join(loaded, ", ")),
                     "each would start its own threads and connections for the same GPU",
                     "unset LOCKSTEP_NCCL_LIB, or name the first");
    });
}

}  // namespace

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

std::string NcclLibrary::text() const {
    return fmt::format("NCCL {} ({})", nccl_version_text(version), path);
}

NcclLibrary load_nccl(const std::string& path, const Environment& environment) {
    NcclLibrary result;
    result.library = open_nccl(chosen_name(path, environment));
    result.api = nccl_functions_of(result.library);
    result.path = result.library.path();
    result.version = result.api.version();
    check_only_one();
    check(result.version >= oldest_version, [&] {
        return Error("E671",
                     fmt::format("{} is too old", result.text()),
                     "communicators can be aborted since NCCL 2.14",
                     "name a newer one with LOCKSTEP_NCCL_LIB");
    });
    return result;
}

}  // namespace lockstep
