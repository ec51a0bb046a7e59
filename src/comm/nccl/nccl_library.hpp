// SPDX-License-Identifier: Apache-2.0
// Finds the NCCL of this process and fills the table from it.
#pragma once

#include "lockstep/core/environment.hpp"

#include "nccl/nccl_api.hpp"
#include "nccl/shared_library.hpp"

#include <string>

namespace lockstep {

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

/// Fills the table from a library's symbols. Errors: E671 if a required one is missing.
NcclApi nccl_functions_of(const SharedLibrary& library);

}  // namespace lockstep
