// SPDX-License-Identifier: Apache-2.0
// NVML's numbers, as its documentation gives them; nvml_abi_check.cpp proves them against nvml.h.
#pragma once

#include "topology/nvml.hpp"

namespace lockstep::nvml_codes {

constexpr NvmlStatus success = 0;
constexpr NvmlStatus too_small = 7;  ///< NVML's answer to a query of a count

constexpr unsigned most_links =
    36;  ///< links of the newest GPUs; older ones refuse queries for the rest
constexpr int remote_switch = 2;

constexpr int uncorrected = 1, since_load = 0;  ///< ECC errors
constexpr int read_capability = 0;              ///< from GPU to GPU
constexpr unsigned char fabric_is_joined = 3;

/// Modes in the order of their numbers, from 0.
enum class ComputeMode { usual, exclusive_thread, prohibited, exclusive_process };
enum class PeerStatus { ok, no_chipset, no_gpu, no_topology, disabled, not_supported };

/// Bits of the reasons for low clocks.
enum SlowReason : unsigned long long {
    power_cap = 0x4,
    hardware = 0x8,
    thermal_software = 0x20,
    thermal = 0x40,
    power_brake = 0x80
};

}  // namespace lockstep::nvml_codes
