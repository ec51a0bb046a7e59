// SPDX-License-Identifier: Apache-2.0
/// @file
/// The needs of training on GPUs: which are met on this node, and the commands that install the
/// others.
#pragma once

#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A library as the loader sees it.
struct ListedLibrary {
    std::string name;  ///< "libcudnn.so.9"
    std::string path;  ///< "" if the loader finds none
    bool operator==(const ListedLibrary&) const = default;
};

/// Lines of `ldd`.
std::vector<ListedLibrary> parse_ldd(std::string_view text);

/// What was found. Empty: nothing was looked for, or nothing is there.
struct GpuNeedFacts {
    bool has_gpu = false;             ///< on PCI, or by its driver
    std::string driver;               ///< the kernel's part: "550.54.15"
    std::string driver_fault;         ///< why libcuda.so.1 cannot be loaded
    std::string own_library;          ///< liblockstep_cuda.so
    std::string own_fault;            ///< why it cannot be loaded
    std::string nccl;                 ///< "NCCL 2.28.9 (/path)"
    std::string nccl_fault;           ///< why there is none
    std::string torch_nccl;           ///< the libnccl that libtorch_cuda.so would load
    std::string torch;                ///< libtorch_cuda.so of the LibTorch in use
    bool has_torch = false;           ///< that file is there
    std::vector<std::string> lacked;  ///< libraries that it needs and the loader does not find
};

/// Whose it is: the site's, Lockstep's, LibTorch's, NVIDIA's.
enum class GpuNeedKind { driver, own_library, torch_library, nccl };

/// One thing that training on GPUs needs.
struct GpuNeed {
    GpuNeedKind kind = GpuNeedKind::driver;
    std::string what;   ///< "driver", "libtorch_cuda.so"
    std::string found;  ///< version or place; "" if `fault` says why not
    std::string fault, fix;
    bool operator==(const GpuNeed&) const = default;
};

/// Looks without loading anything of LibTorch or of what it needs: the loader is asked (`ldd`) in a
/// process of its own. If there is a GPU or `is_wanted`, our GPU library, libcuda and NCCL are
/// loaded; elsewhere nothing of CUDA is. `ranks` is the program that trains. Never throws Error.
GpuNeedFacts read_gpu_needs(const NodeTopology& node,
                            const std::filesystem::path& ranks,
                            bool is_wanted,
                            const Environment& environment = {});

/// All of them, each with what was found or with why not and what to do. Pure.
std::vector<GpuNeed> judge_gpu_needs(const GpuNeedFacts& facts);

/// For `version`: nothing on a machine without a GPU, else one line of what is here, or a line for
/// each thing that is not.
std::string gpu_needs_text(const GpuNeedFacts& facts);

}  // namespace lockstep
