// SPDX-License-Identifier: Apache-2.0
#include "topology/nvml.hpp"
#include "topology/topology_readers.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

namespace code = nvml_codes;

/// Returns the T that `function` fills in, or nothing if it is missing or fails.
template <class T, class Function, class... Before>
std::optional<T> ask(Function function, Before... before) {
    T value{};
    if (function == nullptr || function(before..., &value) != 0) return {};
    return value;
}

template <class Function>
std::string ask_text(Function function, NvmlDevice device) {
    std::array<char, 96> text{};
    if (function == nullptr || function(device, text.data(), text.size()) != 0) return "";
    return text.data();
}

/// "0000:1b:00.0", as sysfs writes it, of "00000000:1B:00.0".
std::string address_of(const NvmlPciInfo& pci) {
    return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

std::string peer_text(int status) {
    // In the order of nvmlGpuP2PStatus_t.
    constexpr std::array names{"ok",
                               "chipset does not support it",
                               "GPU does not support it",
                               "topology does not support it",
                               "disabled by registry key",
                               "not supported"};
    const auto index = static_cast<std::size_t>(status);
    return index < names.size() ? names[index] : "unknown";
}

std::string mode_text(int mode) {
    // In the order of nvmlComputeMode_t.
    constexpr std::array names{"default", "exclusive thread", "prohibited", "exclusive process"};
    const auto index = static_cast<std::size_t>(mode);
    return index < names.size() ? names[index] : "unknown";
}

std::vector<std::string> slow_texts(unsigned long long bits) {
    constexpr std::array<std::pair<unsigned long long, const char*>, 5> names{{
        {code::power_cap, "power cap"},
        {code::hardware, "hardware"},
        {code::thermal_software, "thermal (software)"},
        {code::thermal, "thermal"},
        {code::power_brake, "power brake"},
    }};
    std::vector<std::string> texts;
    for (const auto& [bit, name] : names)
        if ((bits & bit) != 0) texts.emplace_back(name);
    return texts;
}

GpuHealth health_of(const NvmlFunctions& nvml, NvmlDevice device) {
    GpuHealth health;
    if (const auto memory = ask<NvmlMemory>(nvml.memory, device)) {
        health.memory_bytes = memory->total_bytes;
        health.memory_used_bytes = memory->used_bytes;
    }
    unsigned processes = 0;
    if (nvml.processes != nullptr) {
        const auto status = nvml.processes(device, &processes, nullptr);
        if (status == code::success || status == code::too_small)
            health.processes = static_cast<int>(processes);
    }
    if (const auto mode = ask<int>(nvml.compute_mode, device))
        health.compute_mode = mode_text(*mode);
    if (const auto on = ask<int>(nvml.persistence, device)) health.keeps_driver_loaded = *on != 0;
    health.ecc_uncorrected =
        ask<unsigned long long>(nvml.ecc_errors, device, code::uncorrected, code::since_load);
    if (const auto pending = ask<int>(nvml.retired_pending, device))
        health.awaits_reset = *pending != 0;
    std::array<unsigned, 4> rows{};
    if (nvml.remapped_rows != nullptr &&
        nvml.remapped_rows(device, &rows[0], &rows[1], &rows[2], &rows[3]) == 0)
        health.awaits_reset = health.awaits_reset.value_or(false) || rows[2] != 0 || rows[3] != 0;
    if (const auto bits = ask<unsigned long long>(nvml.slow_reasons, device))
        health.slowed_by = slow_texts(*bits);
    return health;
}

void add_mig(const NvmlFunctions& nvml, NvmlDevice device, GpuFacts& gpu) {
    unsigned now = 0, after_reset = 0;
    if (nvml.mig_mode == nullptr || nvml.mig_mode(device, &now, &after_reset) != 0) return;
    gpu.has_mig = now != 0;
    const auto most = gpu.has_mig ? ask<unsigned>(nvml.mig_count, device).value_or(0) : 0;
    for (unsigned i = 0; i < most; ++i)
        if (const auto instance = ask<NvmlDevice>(nvml.mig_device, device, i))
            gpu.mig_uuids.push_back(ask_text(nvml.uuid, *instance));
}

void add_links(const NvmlFunctions& nvml, NvmlDevice device, GpuFacts& gpu) {
    for (unsigned link = 0; link < code::most_links; ++link) {
        const auto active = ask<int>(nvml.link_state, device, link);
        if (!active) continue;
        ++(*active != 0 ? gpu.nvlinks_active : gpu.nvlinks_down);
        if (*active == 0) continue;
        if (ask<int>(nvml.link_remote_type, device, link) == code::remote_switch) {
            gpu.has_nvswitch = true;
            continue;
        }
        const auto remote = ask<NvmlPciInfo>(nvml.link_remote, device, link);
        if (!remote) continue;
        const auto peer = std::ranges::find(gpu.peers, address_of(*remote), &GpuPeer::address);
        if (peer != gpu.peers.end()) ++peer->nvlinks;
    }
    if (gpu.has_nvswitch)
        for (auto& peer : gpu.peers) peer.nvlinks = gpu.nvlinks_active;
}

/// By domain and clique, as NCCL tells which GPUs reach each other.
std::string nvlink_domain(const NvmlFunctions& nvml, NvmlDevice device) {
    const auto fabric = ask<NvmlFabric>(nvml.fabric, device);
    const bool is_joined = fabric && fabric->state == code::fabric_is_joined && fabric->status == 0;
    if (!is_joined || std::ranges::count(fabric->domain, 0) == std::ssize(fabric->domain))
        return "";
    return fmt::format("{:02x}.{}", fmt::join(fabric->domain, ""), fabric->clique);
}

struct Handle {
    NvmlDevice device;
    std::string address;
};

void add_gpu(const NvmlFunctions& nvml,
             const Handle& handle,
             const std::vector<Handle>& all,
             GpuFacts& gpu) {
    gpu.has_driver = true;
    gpu.uuid = ask_text(nvml.uuid, handle.device);
    gpu.model = ask_text(nvml.name, handle.device);
    for (const auto& other : all) {
        if (other.address == handle.address) continue;
        const auto status =
            ask<int>(nvml.peer_status, handle.device, other.device, code::read_capability);
        gpu.peers.push_back({other.address, 0, status ? peer_text(*status) : ""});
    }
    gpu.nvlink_domain = nvlink_domain(nvml, handle.device);
    add_mig(nvml, handle.device, gpu);
    add_links(nvml, handle.device, gpu);
    gpu.health = health_of(nvml, handle.device);
}

std::vector<Handle> handles_of(const NvmlFunctions& nvml, std::vector<std::string>& notes) {
    std::vector<Handle> handles;
    const auto count = ask<unsigned>(nvml.count).value_or(0);
    for (unsigned i = 0; i < count; ++i) {
        const auto device = ask<NvmlDevice>(nvml.device, i);
        const auto pci = device ? ask<NvmlPciInfo>(nvml.pci, *device) : std::nullopt;
        if (pci)
            handles.push_back({*device, address_of(*pci)});
        else
            notes.push_back(
                fmt::format("NVML counts {} GPUs but does not open number {}", count, i));
    }
    return handles;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
}

NvmlFunctions find_all(void* library) {
    NvmlFunctions f{};
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

/// libnvidia-ml.so.1, loaded and initialised during its lifetime.
struct NvmlLibrary {
    NvmlLibrary() {
        if (handle == nullptr) return;
        NvmlStatus (*start)() = nullptr;
        find(handle, "nvmlInit_v2", start);
        const NvmlStatus status = start == nullptr ? -1 : start();
        functions = find_all(handle);
        is_ready = status == 0 && functions.count != nullptr && functions.device != nullptr &&
                   functions.pci != nullptr;
        why_not = fmt::format("no NVML: nvmlInit_v2 gave status {}", status);
    }
    ~NvmlLibrary() {
        if (handle == nullptr) return;
        NvmlStatus (*stop)() = nullptr;
        find(handle, "nvmlShutdown", stop);
        if (is_ready && stop != nullptr) stop();
        ::dlclose(handle);
    }
    NvmlLibrary& operator=(NvmlLibrary&&) = delete;

    void* const handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    NvmlFunctions functions{};
    bool is_ready = false;
    std::string why_not =
        "no NVML: libnvidia-ml.so.1 is not there, so GPUs have no UUIDs and no state";
};

}  // namespace

void add_nvml_facts(const NvmlFunctions* nvml, NodeTopology& node) {
    if (nvml == nullptr) return;
    const auto handles = handles_of(*nvml, node.notes);
    // The driver's /proc lists every GPU; NVML only those that this process may open.
    for (auto& gpu : node.gpus) gpu.has_driver = false;
    for (const auto& handle : handles) {
        auto gpu = std::ranges::find(node.gpus, handle.address, &GpuFacts::address);
        if (gpu == node.gpus.end()) {  // a container may hide /sys/bus/pci
            gpu = node.gpus.emplace(node.gpus.end());
            gpu->pci.address = handle.address;
            gpu->pci.vendor = "0x10de";
        }
        add_gpu(*nvml, handle, handles, *gpu);
    }
    std::ranges::sort(node.gpus, {}, &GpuFacts::address);
}

NodeTopology read_topology() {
    const NvmlLibrary nvml;
    NodeTopology node = read_topology({"/", nvml.is_ready ? &nvml.functions : nullptr});
    if (!node.gpus.empty() && !nvml.is_ready) node.notes.push_back(nvml.why_not);
    return node;
}

}  // namespace lockstep
