// SPDX-License-Identifier: Apache-2.0
#include "topology/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
}

NvmlFunctions find_all(void* library) {
    NvmlFunctions f{};
    find(library, "nvmlSystemGetDriverVersion", f.driver_version);
    find(library, "nvmlDeviceGetCount_v2", f.count);
    find(library, "nvmlDeviceGetHandleByIndex_v2", f.device);
    find(library, "nvmlDeviceGetPciInfo_v3", f.pci);
    find(library, "nvmlDeviceGetUUID", f.uuid);
    find(library, "nvmlDeviceGetName", f.name);
    find(library, "nvmlDeviceGetMigMode", f.mig_mode);
    find(library, "nvmlDeviceGetMaxMigDeviceCount", f.mig_count);
    find(library, "nvmlDeviceGetMigDeviceHandleByIndex", f.mig_device);
    find(library, "nvmlDeviceGetMemoryInfo", f.memory);
    find(library, "nvmlDeviceGetComputeRunningProcesses_v3", f.processes);
    find(library, "nvmlDeviceGetComputeMode", f.compute_mode);
    find(library, "nvmlDeviceGetPersistenceMode", f.persistence);
    find(library, "nvmlDeviceGetTotalEccErrors", f.ecc_errors);
    find(library, "nvmlDeviceGetRetiredPagesPendingStatus", f.retired_pending);
    find(library, "nvmlDeviceGetRemappedRows", f.remapped_rows);
    find(library, "nvmlDeviceGetCurrentClocksEventReasons", f.slow_reasons);
    if (f.slow_reasons == nullptr)  // its name before driver 535, deprecated since
        find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", f.slow_reasons);
    find(library, "nvmlDeviceGetNvLinkState", f.link_state);
    find(library, "nvmlDeviceGetNvLinkRemoteDeviceType", f.link_remote_type);
    find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", f.link_remote);
    find(library, "nvmlDeviceGetP2PStatus", f.peer_status);
    find(library, "nvmlDeviceGetGpuFabricInfo", f.fabric);
    return f;
}

}  // namespace

NvmlLibrary::NvmlLibrary() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
        why_not_ = "no NVML: libnvidia-ml.so.1 is not there, so GPUs have no UUIDs and no state";
        return;
    }
    NvmlStatus (*start)() = nullptr;
    find(library_, "nvmlInit_v2", start);
    const NvmlStatus status = start == nullptr ? -1 : start();
    functions_ = find_all(library_);
    is_ready_ = status == 0 && functions_.count != nullptr && functions_.device != nullptr &&
                functions_.pci != nullptr;
    if (!is_ready_) why_not_ = fmt::format("no NVML: nvmlInit_v2 gave status {}", status);
}

NvmlLibrary::~NvmlLibrary() {
    if (library_ == nullptr) return;
    NvmlStatus (*stop)() = nullptr;
    find(library_, "nvmlShutdown", stop);
    if (is_ready_ && stop != nullptr) stop();
    ::dlclose(library_);
}

}  // namespace lockstep
