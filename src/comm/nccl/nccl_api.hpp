// SPDX-License-Identifier: Apache-2.0
// The NCCL functions that Lockstep calls, as a table: filled from a library or by a test's fake.
#pragma once

#include "lockstep/core/environment.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/nccl_types.hpp"

#include <functional>
#include <string>

namespace lockstep {

/// One member for each ncclXxx, with its arguments. Members marked optional are empty if the
/// library is too old.
struct NcclApi {
    using Comm = nccl::Comm;
    using Result = nccl::Result;
    using Type = nccl::DataTypeCode;
    using Stream = nccl::Stream;

    std::function<Result(int*)> get_version;
    std::function<Result(nccl::UniqueId*)> get_unique_id;
    std::function<const char*(Result)> get_error_string;
    std::function<const char*(Comm)> get_last_error;

    std::function<Result(Comm*, int, nccl::UniqueId, int, nccl::Config*)> comm_init_rank_config;
    /// Optional, 2.23.
    std::function<Result(Comm*, int, int, int, nccl::UniqueId*, nccl::Config*)>
        comm_init_rank_scalable;
    std::function<Result(Comm, Result*)> comm_get_async_error;
    std::function<Result(Comm)> comm_finalize;
    std::function<Result(Comm)> comm_destroy;
    std::function<Result(Comm)> comm_abort;
    std::function<Result(Comm, int)> comm_revoke;  ///< optional, 2.28.9

    std::function<Result()> group_start;
    std::function<Result()> group_end;
    std::function<Result(const void*, void*, std::size_t, Type, nccl::RedOp, Comm, Stream)>
        all_reduce;
    std::function<Result(const void*, void*, std::size_t, Type, nccl::RedOp, int, Comm, Stream)>
        reduce;
    std::function<Result(const void*, void*, std::size_t, Type, nccl::RedOp, Comm, Stream)>
        reduce_scatter;
    std::function<Result(const void*, void*, std::size_t, Type, Comm, Stream)> all_gather;
    std::function<Result(const void*, std::size_t, Type, int, Comm, Stream)> send;
    std::function<Result(void*, std::size_t, Type, int, Comm, Stream)> recv;

    /// Optional, 2.19: all four or none.
    std::function<Result(void**, std::size_t)> mem_alloc;
    std::function<Result(void*)> mem_free;
    std::function<Result(Comm, void*, std::size_t, void**)> comm_register;
    std::function<Result(Comm, void*)> comm_deregister;

    /// Returns the number of ncclGetVersion: 22809 for 2.28.9.
    int version() const;
    bool can_register() const { return mem_alloc && mem_free && comm_register && comm_deregister; }
};

/// Returns "2.28.9".
std::string nccl_version_text(int code);

/// A loaded libnccl and its functions. Stays loaded for the lifetime of this.
struct NcclLibrary {
    SharedLibrary library;
    NcclApi api;
    std::string path;
    int version = 0;

    std::string text() const;  ///< "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"
};

/// Loads `path`, or if empty LOCKSTEP_NCCL_LIB, or the one that LibTorch loaded, or "libnccl.so.2".
/// Errors: E671 it cannot be loaded or is no NCCL, E672 another NCCL is in the process already.
NcclLibrary load_nccl(const std::string& path = {}, const Environment& environment = {});

}  // namespace lockstep
