// SPDX-License-Identifier: Apache-2.0
// Proof, by the compiler, that nccl_types.hpp agrees with NVIDIA's nccl.h and CUDA's headers.
#include "nccl/cuda_api.hpp"
#include "nccl/nccl_types.hpp"

#include <cstddef>
#include <type_traits>

#include <nccl.h>

namespace {

using lockstep::CudaApi;
using lockstep::nccl::Config;
using lockstep::nccl::UniqueId;
namespace ours = lockstep::nccl;

static_assert(ours::success == ncclSuccess && ours::unhandled_cuda_error == ncclUnhandledCudaError);
static_assert(ours::system_error == ncclSystemError && ours::internal_error == ncclInternalError);
static_assert(ours::invalid_argument == ncclInvalidArgument);
static_assert(ours::invalid_usage == ncclInvalidUsage && ours::remote_error == ncclRemoteError);
static_assert(ours::in_progress == ncclInProgress);
static_assert(ours::type_int64 == ncclInt64 && ours::type_float32 == ncclFloat32);
static_assert(ours::sum == ncclSum);
static_assert(sizeof(ncclResult_t) == sizeof(ours::Result));
static_assert(sizeof(ncclDataType_t) == sizeof(ours::DataTypeCode));
static_assert(sizeof(ncclRedOp_t) == sizeof(ours::RedOp));
static_assert(sizeof(ncclComm_t) == sizeof(ours::Comm));
static_assert(sizeof(cudaStream_t) == sizeof(ours::Stream));
static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));

// A later header appends members: ours is its beginning.
static_assert(std::is_standard_layout_v<Config>);
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(Config, nvlink_centric_sched) == offsetof(ncclConfig_t, nvlinkCentricSched));
static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN);

static_assert(CudaApi::success == cudaSuccess && CudaApi::not_ready == cudaErrorNotReady);
static_assert(sizeof(cudaEvent_t) == sizeof(CudaApi::Event));

}  // namespace
