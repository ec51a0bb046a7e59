// SPDX-License-Identifier: Apache-2.0
// NCCL's binary interface in our own declarations, so that everything but the GPU library builds,
// and is tested, without CUDA. If nccl.h is present, cuda/nccl_abi_check.cpp proves that both
// agree.
#pragma once

#include "lockstep/comm/gpu_runtime.hpp"

#include <array>
#include <climits>
#include <cstddef>

namespace lockstep::nccl {

using Comm = struct OpaqueComm*;
using Stream = GpuStream;
using Result = int;
using DataTypeCode = int;
using RedOp = int;

inline constexpr Result success = 0, unhandled_cuda_error = 1, system_error = 2, internal_error = 3,
                        invalid_argument = 4, invalid_usage = 5, remote_error = 6, in_progress = 7;
inline constexpr DataTypeCode type_int64 = 4, type_float32 = 7;
inline constexpr RedOp sum = 0;

struct UniqueId {
    std::array<char, 128> internal;
};

/// ncclConfig_t of 2.28. Older libraries read the part that they know, newer ones all of it.
struct Config {
    std::size_t size = sizeof(Config);
    unsigned int magic = 0xcafebeef;
    unsigned int version = 22809;
    int blocking = INT_MIN;  ///< INT_MIN: not set
    int cga_cluster_size = INT_MIN;
    int min_ctas = INT_MIN;
    int max_ctas = INT_MIN;
    const char* net_name = nullptr;
    int split_share = INT_MIN;
    int traffic_class = INT_MIN;
    const char* comm_name = nullptr;
    int collnet_enable = INT_MIN;
    int cta_policy = INT_MIN;
    int shrink_share = INT_MIN;
    int nvls_ctas = INT_MIN;
    int n_channels_per_net_peer = INT_MIN;
    int nvlink_centric_sched = INT_MIN;
};

}  // namespace lockstep::nccl
