// SPDX-License-Identifier: Apache-2.0
/// @file
/// The GPU that each rank uses, and what GPUs here can be used with.
#pragma once

#include "lockstep/comm/bootstrap.hpp"

#include <map>
#include <string>

namespace lockstep {

struct CudaApi;

/// A GPU as a plan names it, never by index: CUDA counts fastest first, others do not.
struct PlannedGpu {
    std::string pci;   ///< "0000:3b:00.0"
    std::string uuid;  ///< "GPU-..."; "MIG-..." of an instance; "" if it is not known
};

/// What CUDA says of the device that is selected.
struct SelectedGpu {
    int device = -1;   ///< CUDA's number in this process
    std::string pci;   ///< address on the bus
    std::string uuid;  ///< as CUDA has it
    std::string name;  ///< of the model
    bool operator==(const SelectedGpu&) const = default;
};

/// The first CUDA calls of a process: nothing before may have made a context on another GPU. By PCI
/// address; an instance by CUDA_VISIBLE_DEVICES, which is set here, for CUDA has no other way.
/// Then CUDA is asked what it selected. Errors: E689 CUDA does not show that GPU to this process,
/// E690 it selected another one, E681.
SelectedGpu select_gpu(const CudaApi& cuda, const PlannedGpu& planned);

/// Collective. select_gpu(), then all ranks exchange their selections. Errors on all ranks:
/// E673 two of them have one GPU, E682 another rank could not select its own, E630.
SelectedGpu claim_gpu(const CudaApi& cuda,
                      const PlannedGpu& planned,
                      Bootstrap& bootstrap,
                      double deadline_s);

/// Whether ranks that share GPUs are all on one node.
enum class SharingReach { one_node, several_nodes };

/// NCCL's variables, to be set before it is loaded, for rank `rank` of those that share GPUs: NCCL
/// refuses two of one host on one GPU, so each is a host of its own (NCCL_HOSTID), and between
/// hosts it goes through sockets. Right, and slow.
std::map<std::string, std::string> nccl_variables_of_sharing(int rank, SharingReach reach);

/// Collective. The same if a process uses CUDA for nothing else: with a liblockstep_cuda.so of
/// its own. Errors: E670 too.
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
