// SPDX-License-Identifier: Apache-2.0
/// @file
/// What this machine's GPUs and their libraries are, in one line.
#pragma once

#include <string>

namespace lockstep {

/// "2 x NVIDIA H200, NCCL 2.28.9 (/usr/lib/libnccl.so.2)", "none (no driver)", or why they cannot
/// be used. Loads the libraries where there is a driver. Never throws Error.
std::string describe_gpus();

}  // namespace lockstep
