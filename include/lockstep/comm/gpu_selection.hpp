// SPDX-License-Identifier: Apache-2.0
/// @file
/// The GPU that each rank uses, and what GPUs here can be used with.
#pragma once

#include "lockstep/comm/bootstrap.hpp"

#include <map>
#include <string>

namespace lockstep {

struct CudaApi;

/// A GPU as a plan names it, never by index: CUDA counts the fastest first, others do not.
struct PlannedGpu {
    std::string pci;   ///< "0000:3b:00.0"
    std::string uuid;  ///< "GPU-..."; "MIG-..." of an instance; "" if unknown
};

/// Facts that CUDA reports about the selected device.
struct SelectedGpu {
    int device = -1;     ///< CUDA's number in this process
    std::string pci;     ///< address on the bus
    std::string uuid;    ///< UUID reported by CUDA
    std::string name;    ///< name of the model
    int capability = 0;  ///< compute capability, of 8.6 the 8
    bool operator==(const SelectedGpu&) const = default;
};

/// Selects the GPU, as the first CUDA calls of a process: no earlier call may have made a context
/// on another GPU. A GPU is selected by PCI address. An instance is selected by
/// CUDA_VISIBLE_DEVICES, which is set here, because CUDA has no other way. Then CUDA is asked what
/// it selected. Errors: E689 CUDA does not show that GPU to this process, E690 it selected another
/// one, E681.
SelectedGpu select_gpu(const CudaApi& cuda, const PlannedGpu& planned);

/// Collective. Calls select_gpu(), then all ranks exchange their selections. Errors on all ranks:
/// E673 two ranks have one GPU, E682 another rank could not select its own, E630.
SelectedGpu claim_gpu(const CudaApi& cuda,
                      const PlannedGpu& planned,
                      Bootstrap& bootstrap,
                      double deadline_s);

/// The nodes of ranks that share GPUs.
enum class SharingReach { one_node, several_nodes };

/// Returns NCCL's variables for rank `rank` of those that share GPUs, to be set before NCCL is
/// loaded. NCCL refuses two ranks of one host on one GPU, so each rank becomes a host of its own
/// (NCCL_HOSTID), and hosts communicate through sockets. This is correct, and slow.
std::map<std::string, std::string> nccl_variables_of_sharing(int rank, SharingReach reach);

/// Collective. Does the same for a process that uses CUDA for nothing else, with a
/// liblockstep_cuda.so of its own. Errors: E670 too.
SelectedGpu try_gpu(const PlannedGpu& planned, Bootstrap& bootstrap, double deadline_s);

/// Returns the reason why no GPU driver is usable (libcuda.so.1 cannot be loaded), or "".
std::string gpu_driver_fault();

/// The libraries besides the driver, each with its path, or the reason why it cannot be loaded.
struct GpuLibraries {
    std::string own, own_fault;    ///< liblockstep_cuda.so
    std::string nccl, nccl_fault;  ///< "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"
};

/// Loads them, even without a driver. NCCL is `nccl_path`, or if that is empty the first that is
/// found. Never throws Error.
GpuLibraries load_gpu_libraries(const std::string& nccl_path = {});

/// Returns "2 x NVIDIA H200, NCCL 2.28.9 (/usr/lib/libnccl.so.2)", "none (no driver)", or the
/// reason why they cannot be used. Loads the libraries if there is a driver; NCCL as
/// load_gpu_libraries() does. Never throws Error.
std::string describe_gpus(const std::string& nccl_path = {});

}  // namespace lockstep
