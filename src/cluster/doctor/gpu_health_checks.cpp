// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"

#include "doctor/families.hpp"

#include <array>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr double crowded_share = 0.1;  // share of a GPU's memory that others hold

/// Returns the result of `of` for each GPU that this rank sees; nothing for ranks that train on
/// CPUs.
Ailments for_each_gpu(const DoctorFacts& facts,
                      const std::function<Ailments(const GpuFacts&)>& of) {
    Ailments found;
    if (!facts.plan.uses_gpus) return found;
    for (const auto* gpu : visible_gpus(facts))
        for (Ailment& ailment : of(*gpu)) found.push_back(std::move(ailment));
    return found;
}

Ailments broken_links(const DoctorFacts& facts) {
    return for_each_gpu(facts, [](const GpuFacts& gpu) -> Ailments {
        Ailments found;
        for (const GpuPeer& peer : gpu.peers)
            if (peer.nvlinks > 0 && !peer.peer_access.empty() && peer.peer_access != "ok")
                found.push_back({fmt::format("GPU {} has NVLink to {}, but peer access is {}",
                                             gpu.pci.address,
                                             peer.address,
                                             peer.peer_access)});
        if (gpu.nvlinks_down > 0 && gpu.nvlinks_active > 0)
            found.push_back({fmt::format("{} of {} NVLinks of GPU {} are down",
                                         gpu.nvlinks_down,
                                         gpu.nvlinks_down + gpu.nvlinks_active,
                                         gpu.pci.address)});
        return found;
    });
}

/// Idle GPUs lower the speed of their link, never its width.
Ailments narrow_link(const DoctorFacts& facts) {
    return for_each_gpu(facts, [](const GpuFacts& gpu) -> Ailments {
        const PciLink& link = gpu.pci.link;
        if (link.width == 0 || link.width >= link.max_width) return {};
        return {{fmt::format(
            "GPU {} runs on {} of {} PCIe lanes", gpu.pci.address, link.width, link.max_width)}};
    });
}

Ailments memory_errors(const DoctorFacts& facts) {
    return for_each_gpu(facts, [](const GpuFacts& gpu) -> Ailments {
        if (gpu.health.ecc_uncorrected.value_or(0) > 0)
            return {{fmt::format("GPU {} had {} memory error(s) that could not be corrected",
                                 gpu.pci.address,
                                 *gpu.health.ecc_uncorrected)}};
        if (gpu.health.awaits_reset.value_or(false))
            return {{.what = fmt::format("GPU {} waits for a reset to retire bad memory",
                                         gpu.pci.address),
                     .severity = Severity::warning}};
        return {};
    });
}

Ailments occupied(const DoctorFacts& facts) {
    return for_each_gpu(facts, [](const GpuFacts& gpu) -> Ailments {
        const GpuHealth& health = gpu.health;
        Ailments found;
        const auto used = static_cast<double>(health.memory_used_bytes.value_or(0));
        const auto total = static_cast<double>(health.memory_bytes.value_or(0));
        if (health.processes.value_or(0) > 0 && used > crowded_share * total)
            found.push_back({fmt::format("{} process(es) hold {} of GPU {}",
                                         *health.processes,
                                         bytes_text(*health.memory_used_bytes),
                                         gpu.pci.address)});
        if (health.compute_mode == "prohibited")
            found.push_back({.what = fmt::format("GPU {} is closed for computing", gpu.pci.address),
                             .fix = "have nvidia-smi -c 0 done, or use another node",
                             .severity = Severity::error});
        if (health.keeps_driver_loaded == false)
            found.push_back(
                {.what = fmt::format("GPU {} has persistence mode off: it starts slowly",
                                     gpu.pci.address),
                 .severity = Severity::info});
        return found;
    });
}

Ailments slowed_down(const DoctorFacts& facts) {
    return for_each_gpu(facts, [](const GpuFacts& gpu) -> Ailments {
        if (gpu.health.slowed_by.empty()) return {};
        return {{fmt::format(
            "GPU {} is slowed down: {}", gpu.pci.address, fmt::join(gpu.health.slowed_by, ", "))}};
    });
}

const std::array gpu_health_table{
    DoctorCheck{"G8",
                "GPUs do not reach each other as they could",
                "Without peer access or with links down, NCCL stages through the host.",
                "nvidia-smi topo -p2p r and nvidia-smi nvlink -s say more; use another node",
                broken_links},
    DoctorCheck{"G9",
                "a GPU's PCIe link is narrow",
                "Copies to and from this GPU take longer, and all ranks wait.",
                "use another node; the card may have to be seated again",
                narrow_link},
    DoctorCheck{"G10",
                "a GPU has memory errors",
                "Results may be wrong, and the next error ends the job.",
                "use another node (--write-exclude), and tell the system's staff",
                memory_errors,
                Severity::error},
    DoctorCheck{"G11",
                "a GPU is in use or not open",
                "Others' processes take memory and time on a GPU that should be this job's.",
                "ask for the node alone (sbatch --exclusive), or use another one",
                occupied},
    DoctorCheck{"G12",
                "a GPU is slowed down",
                "Heat or lack of power lowers its clock; all ranks wait for the slowest.",
                "use another node (--write-exclude), and tell the system's staff",
                slowed_down},
};

}  // namespace

std::span<const DoctorCheck> gpu_health_checks() {
    return gpu_health_table;
}

}  // namespace lockstep
