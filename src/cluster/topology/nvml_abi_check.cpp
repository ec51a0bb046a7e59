// SPDX-License-Identifier: Apache-2.0
// Proof, by the compiler, that nvml.hpp agrees with NVIDIA's nvml.h. It is
// compiled only if that header is found, and needs neither driver nor GPU.
#include "topology/nvml.hpp"

#include <cstddef>
#include <type_traits>

#include <nvml.h>

namespace {

using lockstep::NvmlDevice;
using lockstep::NvmlFabric;
using lockstep::NvmlFunctions;
using lockstep::NvmlMemory;
using lockstep::NvmlPciInfo;
using lockstep::NvmlStatus;
namespace ours = lockstep::nvml_codes;

static_assert(sizeof(nvmlReturn_t) == sizeof(NvmlStatus));
static_assert(ours::success == NVML_SUCCESS);
static_assert(ours::too_small == NVML_ERROR_INSUFFICIENT_SIZE);
static_assert(sizeof(nvmlDevice_t) == sizeof(NvmlDevice) && std::is_pointer_v<nvmlDevice_t>);

static_assert(sizeof(nvmlPciInfo_t) == sizeof(NvmlPciInfo));
static_assert(offsetof(nvmlPciInfo_t, busIdLegacy) == offsetof(NvmlPciInfo, legacy_address));
static_assert(offsetof(nvmlPciInfo_t, domain) == offsetof(NvmlPciInfo, domain));
static_assert(offsetof(nvmlPciInfo_t, bus) == offsetof(NvmlPciInfo, bus));
static_assert(offsetof(nvmlPciInfo_t, device) == offsetof(NvmlPciInfo, device));
static_assert(offsetof(nvmlPciInfo_t, pciDeviceId) == offsetof(NvmlPciInfo, device_id));
static_assert(offsetof(nvmlPciInfo_t, pciSubSystemId) == offsetof(NvmlPciInfo, subsystem_id));
static_assert(offsetof(nvmlPciInfo_t, busId) == offsetof(NvmlPciInfo, address));

static_assert(sizeof(nvmlMemory_t) == sizeof(NvmlMemory));
static_assert(offsetof(nvmlMemory_t, total) == offsetof(NvmlMemory, total_bytes));
static_assert(offsetof(nvmlMemory_t, free) == offsetof(NvmlMemory, free_bytes));
static_assert(offsetof(nvmlMemory_t, used) == offsetof(NvmlMemory, used_bytes));

static_assert(sizeof(nvmlGpuFabricInfo_t) == sizeof(NvmlFabric));
static_assert(offsetof(nvmlGpuFabricInfo_t, clusterUuid) == offsetof(NvmlFabric, domain));
static_assert(offsetof(nvmlGpuFabricInfo_t, status) == offsetof(NvmlFabric, status));
static_assert(offsetof(nvmlGpuFabricInfo_t, cliqueId) == offsetof(NvmlFabric, clique));
static_assert(offsetof(nvmlGpuFabricInfo_t, state) == offsetof(NvmlFabric, state));
static_assert(ours::fabric_is_joined == NVML_GPU_FABRIC_STATE_COMPLETED);

// What goes as int or unsigned is an enum or an unsigned of NVML's.
static_assert(sizeof(nvmlComputeMode_t) == sizeof(int) && sizeof(nvmlEnableState_t) == sizeof(int));
static_assert(sizeof(nvmlMemoryErrorType_t) == sizeof(int));
static_assert(sizeof(nvmlEccCounterType_t) == sizeof(int));
static_assert(sizeof(nvmlIntNvLinkDeviceType_t) == sizeof(int));
static_assert(sizeof(nvmlGpuP2PStatus_t) == sizeof(int));
static_assert(sizeof(nvmlGpuP2PCapsIndex_t) == sizeof(int));

static_assert(ours::most_links >= NVML_NVLINK_MAX_LINKS, "some links would not be asked");
static_assert(ours::remote_switch == NVML_NVLINK_DEVICE_TYPE_SWITCH);
static_assert(ours::uncorrected == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(ours::since_load == NVML_VOLATILE_ECC);
static_assert(ours::read_capability == NVML_P2P_CAPS_INDEX_READ);

// The order of the names in nvml_gpus.cpp.
static_assert(NVML_COMPUTEMODE_DEFAULT == 0 && NVML_COMPUTEMODE_EXCLUSIVE_THREAD == 1);
static_assert(NVML_COMPUTEMODE_PROHIBITED == 2 && NVML_COMPUTEMODE_EXCLUSIVE_PROCESS == 3);
static_assert(NVML_P2P_STATUS_OK == 0 && NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED == 1);
static_assert(NVML_P2P_STATUS_GPU_NOT_SUPPORTED == 2);
static_assert(NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED == 3);
static_assert(NVML_P2P_STATUS_DISABLED_BY_REGKEY == 4 && NVML_P2P_STATUS_NOT_SUPPORTED == 5);

// The deprecated words: older headers have only these, and newer ones define them by the others.
static_assert(ours::power_cap == nvmlClocksThrottleReasonSwPowerCap);
static_assert(ours::hardware == nvmlClocksThrottleReasonHwSlowdown);
static_assert(ours::thermal_software == nvmlClocksThrottleReasonSwThermalSlowdown);
static_assert(ours::thermal == nvmlClocksThrottleReasonHwThermalSlowdown);
static_assert(ours::power_brake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);

}  // namespace
