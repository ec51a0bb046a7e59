// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library as a table of functions: loaded from the library, or made by tests.
#pragma once

#include <array>

namespace lockstep {

/// NVML's own types, as its documentation gives them (nvml.h, API version 12). 0 is success.
using NvmlStatus = int;
using NvmlDevice = struct NvmlDeviceHandle*;  ///< opaque; valid while the library is loaded

/// nvmlPciInfo_t.
struct NvmlPciInfo {
    std::array<char, 16> legacy_address;
    unsigned domain, bus, device, device_id, subsystem_id;
    std::array<char, 32> address;  ///< "00000000:1B:00.0"
};

/// nvmlMemory_t.
struct NvmlMemory {
    unsigned long long total_bytes, free_bytes, used_bytes;
};

/// nvmlGpuFabricInfo_t.
struct NvmlFabric {
    std::array<unsigned char, 16> domain;  ///< zeros: no links between nodes
    NvmlStatus status;
    unsigned clique;
    unsigned char state;
};

/// Each may be null: older libraries lack some, and then those facts are unknown.
struct NvmlFunctions {
    NvmlStatus (*count)(unsigned* devices);
    NvmlStatus (*device)(unsigned index, NvmlDevice* device);
    NvmlStatus (*pci)(NvmlDevice, NvmlPciInfo*);
    NvmlStatus (*uuid)(NvmlDevice, char* text, unsigned size);
    NvmlStatus (*name)(NvmlDevice, char* text, unsigned size);
    NvmlStatus (*mig_mode)(NvmlDevice, unsigned* now, unsigned* after_reset);
    NvmlStatus (*mig_count)(NvmlDevice, unsigned* most);
    NvmlStatus (*mig_device)(NvmlDevice, unsigned index, NvmlDevice* instance);
    NvmlStatus (*memory)(NvmlDevice, NvmlMemory*);
    NvmlStatus (*processes)(NvmlDevice, unsigned* count, void* infos);
    NvmlStatus (*compute_mode)(NvmlDevice, int* mode);
    NvmlStatus (*persistence)(NvmlDevice, int* is_on);
    NvmlStatus (*ecc_errors)(NvmlDevice, int type, int counter, unsigned long long* count);
    NvmlStatus (*retired_pending)(NvmlDevice, int* is_pending);
    NvmlStatus (*remapped_rows)(
        NvmlDevice, unsigned* corrected, unsigned* failed, unsigned* pending, unsigned* failure);
    NvmlStatus (*slow_reasons)(NvmlDevice, unsigned long long* bits);
    NvmlStatus (*link_state)(NvmlDevice, unsigned link, int* is_active);
    NvmlStatus (*link_remote_type)(NvmlDevice, unsigned link, int* type);
    NvmlStatus (*link_remote)(NvmlDevice, unsigned link, NvmlPciInfo*);
    NvmlStatus (*peer_status)(NvmlDevice, NvmlDevice, int capability, int* status);
    NvmlStatus (*fabric)(NvmlDevice, NvmlFabric*);
};

}  // namespace lockstep

// NVML's numbers, as its documentation gives them; nvml_abi_check.cpp proves them against nvml.h.
namespace lockstep::nvml_codes {

constexpr NvmlStatus success = 0;
constexpr NvmlStatus too_small = 7;  ///< NVML's answer to a query of a count

constexpr unsigned most_links =
    36;  ///< links of the newest GPUs; older ones refuse queries for the rest
constexpr int remote_switch = 2;

constexpr int uncorrected = 1, since_load = 0;  ///< ECC errors
constexpr int read_capability = 0;              ///< from GPU to GPU
constexpr unsigned char fabric_is_joined = 3;

/// Bits of the reasons for low clocks.
enum SlowReason : unsigned long long {
    power_cap = 0x4,
    hardware = 0x8,
    thermal_software = 0x20,
    thermal = 0x40,
    power_brake = 0x80
};

}  // namespace lockstep::nvml_codes
