// SPDX-License-Identifier: Apache-2.0
/// @file
/// The requirements of training on GPUs: which are met on this node, and the commands that install
/// the others.
#pragma once

#include "lockstep/cluster/topology.hpp"
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/environment.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A library as the loader finds it.
struct ListedLibrary {
    std::string name;  ///< "libcudnn.so.9"
    std::string path;  ///< "" if the loader finds none
    bool operator==(const ListedLibrary&) const = default;
};

/// Parses the lines of `ldd`.
std::vector<ListedLibrary> parse_ldd(std::string_view text);

/// Facts about GPU software, with the libraries besides the driver. Empty: not searched for, or not
/// found.
struct GpuNeedFacts : GpuLibraries {
    bool has_gpu = false;             ///< a GPU on PCI, or by its driver
    std::string driver;               ///< version of the kernel's part: "550.54.15"
    std::string driver_fault;         ///< the reason why libcuda.so.1 cannot be loaded
    std::string torch_nccl;           ///< the libnccl that libtorch_cuda.so would load
    std::string torch;                ///< path of libtorch_cuda.so of the LibTorch in use
    bool has_torch = false;           ///< true if that file exists
    std::vector<std::string> lacked;  ///< libraries that it needs and the loader does not find
};

/// The owner of a requirement: the site, Lockstep, LibTorch, NVIDIA.
enum class GpuNeedKind { driver, own_library, torch_library, nccl };

/// One requirement of training on GPUs.
struct GpuNeed {
    GpuNeedKind kind = GpuNeedKind::driver;
    std::string what;   ///< "driver", "libtorch_cuda.so"
    std::string found;  ///< version or path
    std::string fault;  ///< the reason why it is not met, "" if it is
    std::string fix;    ///< the remedy, if there is a fault
};

/// Reads the facts without loading any part of LibTorch or its dependencies: a separate process
/// asks the loader (`ldd`). If there is a GPU or `is_wanted`, our GPU library, libcuda and NCCL are
/// loaded; else no CUDA library is. `ranks` is the program that trains. Never throws Error.
GpuNeedFacts read_gpu_needs(const NodeTopology& node,
                            const std::filesystem::path& ranks,
                            bool is_wanted,
                            const Environment& environment = {});

/// Returns all requirements, each with the version found, or with the reason and the remedy. Pure.
std::vector<GpuNeed> judge_gpu_needs(const GpuNeedFacts& facts);

/// Returns text for `version`: nothing on a machine without a GPU, else one line if all is there,
/// or a line for each missing part.
std::string gpu_needs_text(const GpuNeedFacts& facts);

}  // namespace lockstep
