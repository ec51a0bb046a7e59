// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1: the simulated GPUs, healthy, without NVLink.
#include "simcuda/gpus.hpp"
#include "topology/nvml.hpp"

#include <cstdint>
#include <cstring>
#include <string>

namespace {

using lockstep::NvmlDevice;
using lockstep::NvmlMemory;
using lockstep::NvmlPciInfo;

constexpr int ok = 0, invalid_argument = 2, too_small = 7;

NvmlDevice device_of(unsigned gpu) {
    return reinterpret_cast<NvmlDevice>(static_cast<std::uintptr_t>(gpu) + 1);
}

int gpu_of(NvmlDevice device) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}

int give(const std::string& text, char* room, unsigned size) {
    if (text.size() >= size) return too_small;
    std::memcpy(room, text.c_str(), text.size() + 1);
    return ok;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
    return ok;
}

int nvmlShutdown() {
    return ok;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = static_cast<unsigned>(simcuda::gpu_count());
    return ok;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned gpu, NvmlDevice* device) {
    if (gpu >= static_cast<unsigned>(simcuda::gpu_count())) return invalid_argument;
    *device = device_of(gpu);
    return ok;
}

int nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo* info) {
    *info = {};
    info->bus = static_cast<unsigned>(simcuda::first_bus + gpu_of(device));
    const std::string address = simcuda::pci_of(gpu_of(device));
    std::memcpy(info->legacy_address.data(), address.c_str(), address.size() + 1);
    return give("0000" + address, info->address.data(), sizeof info->address);
}

int nvmlDeviceGetUUID(NvmlDevice device, char* text, unsigned size) {
    return give(simcuda::uuid_of(gpu_of(device)), text, size);
}

int nvmlDeviceGetName(NvmlDevice, char* text, unsigned size) {
    return give(simcuda::gpu_name, text, size);
}

int nvmlDeviceGetMemoryInfo(NvmlDevice, NvmlMemory* memory) {
    *memory = {simcuda::usual_memory, simcuda::usual_memory, 0};
    return ok;
}

int nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice, unsigned* count, void*) {
    *count = 0;
    return ok;
}

int nvmlDeviceGetComputeMode(NvmlDevice, int* mode) {
    *mode = 0;
    return ok;
}

int nvmlDeviceGetPersistenceMode(NvmlDevice, int* is_on) {
    *is_on = 1;
    return ok;
}

int nvmlDeviceGetP2PStatus(NvmlDevice, NvmlDevice, int, int* status) {
    *status = ok;
    return ok;
}

}  // extern "C"
