// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/numbers.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr double crowded_share = 0.1;  // share of a GPU's memory that others hold

std::string cuda_version_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool is_nvidia_gpu(const GpuFacts& gpu) {
    return gpu.pci.vendor == "0x10de" || gpu.pci.vendor.empty();
}

/// Like all of these: nothing for ranks that train on CPUs.
Ailments no_driver(const DoctorFacts& facts) {
    if (!facts.plan.uses_gpus) return {};
    const ProgramFacts& program = facts.program;
    const std::string driver =
        facts.node.kernel.nvidia_driver.empty() ? "none" : facts.node.kernel.nvidia_driver;
    const int own_major = program.cuda_runtime.value_or(0) / 1000;
    if (program.cuda_driver && *program.cuda_driver / 1000 < own_major)
        return {
            {.what = fmt::format("the driver ({}) knows CUDA {}, this program needs {}",
                                 driver,
                                 cuda_version_text(*program.cuda_driver),
                                 cuda_version_text(*program.cuda_runtime)),
             .why = "A driver runs programs of its own major version of CUDA and of older ones.",
             .fix = "ask for nodes with a newer driver, or build with an older CUDA"}};
    const bool has_gpu = std::ranges::any_of(facts.node.gpus, is_nvidia_gpu);
    const bool has_driver = std::ranges::any_of(facts.node.gpus, &GpuFacts::has_driver);
    if (has_gpu && !has_driver && facts.node.kernel.nvidia_driver.empty())
        return {{"there is an NVIDIA GPU, but no driver is loaded"}};
    if (!program.cuda_fault.empty())
        return {{fmt::format("CUDA gives no GPU: {} (driver {})", program.cuda_fault, driver)}};
    return {};
}

Ailments shared_gpu(const RanksOfNode& ranks) {
    std::map<std::string, RanksOfNode> users_of;
    for (const auto* facts : ranks)
        if (const GpuFacts* gpu = gpu_of(*facts); facts->plan.uses_gpus && gpu != nullptr)
            users_of[gpu->uuid.empty() ? gpu->pci.address : gpu->uuid].push_back(facts);
    Ailments found;
    for (const auto& [name, users] : users_of) {
        if (users.size() < 2) continue;
        const GpuFacts* gpu = gpu_of(*users.front());
        const std::vector<int> numbers = numbers_of(users);
        std::vector<std::string> values;
        for (const auto* facts : users)
            values.push_back(fmt::format(
                "rank {}: {}", facts->rank, variable_text(*facts, "CUDA_VISIBLE_DEVICES")));
        found.push_back({.what = fmt::format("{} use one GPU, {} {} ({})",
                                             ranks_text(numbers),
                                             gpu->pci.address,
                                             gpu->uuid,
                                             fmt::join(values, ", ")),
                         .ranks = numbers});
    }
    return found;
}

Ailments wrong_number_of_gpus(const RanksOfNode& ranks) {
    if (!ranks.front()->plan.uses_gpus) return {};
    std::set<std::string> idle;
    for (const auto* facts : ranks)
        for (const auto* gpu : visible_gpus(*facts)) idle.insert(gpu->pci.address);
    if (const std::size_t visible = idle.size(); ranks.size() > visible)
        return {{.what = fmt::format("{} rank(s), {} usable GPU(s)", ranks.size(), visible),
                 .why = "Each rank needs a GPU of its own.",
                 .fix = visible == 0
                            ? "train with --device cpu, or ask for a node with GPUs"
                            : fmt::format("start {} rank(s) on this node, or ask for {} GPUs",
                                          visible,
                                          ranks.size()),
                 .severity = Severity::error}};
    for (const auto* facts : ranks)
        if (const GpuFacts* gpu = gpu_of(*facts); facts->plan.uses_gpus && gpu != nullptr)
            idle.erase(gpu->pci.address);
    if (idle.empty()) return {};
    return {{fmt::format("nobody uses GPU {}", fmt::join(idle, ", "))}};
}

/// Ranks of one node to which the driver shows different GPUs: the control group hides the others.
Ailments isolated_gpus(const RanksOfNode& ranks) {
    std::set<std::set<std::string>> views;
    for (const auto* facts : ranks) {
        std::set<std::string> view;
        for (const GpuFacts& gpu : facts->node.gpus)
            if (gpu.has_driver) view.insert(gpu.uuid.empty() ? gpu.pci.address : gpu.uuid);
        if (!facts->plan.uses_gpus || view.size() != 1) return {};
        views.insert(view);
    }
    if (views.size() < 2) return {};
    return {{"each rank sees one GPU only, and the node has more"}};
}

enum class WordKind { index, gpu, mig, wrong };

WordKind kind_of(const std::string& word) {
    if (const auto index = parse_integer(word))
        return *index >= 0 ? WordKind::index : WordKind::wrong;
    if (word.starts_with("MIG-")) return WordKind::mig;
    return word.starts_with("GPU-") ? WordKind::gpu : WordKind::wrong;
}

Ailments bad_visible_devices(const DoctorFacts& facts) {
    const std::string text = variable(facts, "CUDA_VISIBLE_DEVICES");
    if (!facts.plan.uses_gpus || !facts.environment.contains("CUDA_VISIBLE_DEVICES")) return {};
    const auto words = comma_separated(text);
    const auto say = [&](const std::string& reason) {
        return Ailments{{fmt::format("CUDA_VISIBLE_DEVICES={} {}", text, reason)}};
    };
    if (words.empty()) return say("hides all GPUs");
    std::set<WordKind> kinds;
    for (const std::string& word : words) kinds.insert(kind_of(word));
    if (kinds.contains(WordKind::wrong)) return say("is no list of indices or UUIDs");
    if (kinds.size() > 1) return say("mixes indices, GPUs and MIG instances");
    if (std::set(words.begin(), words.end()).size() != words.size()) return say("names one twice");
    const auto visible = visible_gpus(facts).size();
    const bool has_any = std::ranges::any_of(facts.node.gpus, &GpuFacts::has_driver);
    if (has_any && visible < words.size())
        return say(fmt::format("names a GPU that is not there: '{}'", words[visible]));
    return {};
}

Ailments disagrees_with_slurm(const DoctorFacts& facts) {
    auto found = bad_visible_devices(facts);
    const auto given = comma_separated(variable(facts, "SLURM_STEP_GPUS"));
    const auto used = comma_separated(variable(facts, "CUDA_VISIBLE_DEVICES"));
    if (!found.empty() || !facts.plan.uses_gpus || used.size() <= given.size() || given.empty())
        return found;
    return {{.what = fmt::format("CUDA_VISIBLE_DEVICES names {} GPUs, Slurm gave this step {} ({})",
                                 used.size(),
                                 given.size(),
                                 variable_text(facts, "SLURM_STEP_GPUS")),
             .severity = Severity::warning}};
}

Ailments far_gpu(const DoctorFacts& facts) {
    const GpuFacts* gpu = gpu_of(facts);
    if (!facts.plan.uses_gpus || gpu == nullptr || gpu->pci.numa_node < 0) return {};
    const std::vector<int>& cpus = facts.node.allowed_cpus;
    const auto near = std::ranges::count_if(
        cpus, [&](int cpu) { return numa_node_of(facts.node, cpu) == gpu->pci.numa_node; });
    const auto far = static_cast<std::ptrdiff_t>(cpus.size()) - near;
    if (far <= near) return {};
    return {{.what = fmt::format("GPU {} is at NUMA node {}, this rank's cores {} are elsewhere",
                                 gpu->pci.address,
                                 gpu->pci.numa_node,
                                 cpu_list_text(cpus)),
             .fix = fmt::format("cores {} are near it; 'lockstep map' prints the binding",
                                cpu_list_text(gpu->pci.cpus))}};
}

Ailments unknown_locality(const DoctorFacts& facts) {
    std::vector<std::string> unknown;
    for (const auto* gpu : visible_gpus(facts))
        if (gpu->pci.numa_node < 0 && facts.node.numa_nodes.size() > 1)
            unknown.push_back(gpu->pci.address);
    if (!facts.plan.uses_gpus || unknown.empty()) return {};
    return {{fmt::format("GPU {} has no NUMA node", fmt::join(unknown, ", "))}};
}

Ailments mig(const RanksOfNode& ranks) {
    if (!ranks.front()->plan.uses_gpus || ranks.size() < 2) return {};
    for (const auto* facts : ranks)
        for (const auto* gpu : visible_gpus(*facts))
            if (gpu->has_mig)
                return {{fmt::format("GPU {} is cut into instances (MIG)", gpu->pci.address)}};
    return {};
}

Ailments missing_parts(const DoctorFacts& facts) {
    if (!facts.plan.uses_gpus) return {};
    Ailments found;
    for (const MissingPart& part : facts.program.missing_for_gpus)
        found.push_back(
            {.what = fmt::format("{} is missing: {}", part.what, part.why), .fix = part.fix});
    return found;
}

/// Domains of NVLink that hold GPUs of ranks on several nodes, each with its ranks. NCCL ends there
/// if a rank has no IMEX channel (ncclMnnvlCheck() in its mnnvl.cc).
Ailments no_imex_channel(JobRanks ranks) {
    std::map<std::string, std::vector<const DoctorFacts*>> domains;
    for (const DoctorFacts& facts : ranks) {
        const GpuFacts* gpu = gpu_of(facts);
        const bool is_off = variable(facts, "NCCL_MNNVL_ENABLE") == "0";
        if (facts.plan.uses_gpus && !is_off && gpu != nullptr && !gpu->nvlink_domain.empty())
            domains[gpu->nvlink_domain].push_back(&facts);
    }
    Ailments found;
    for (const auto& [name, users] : domains) {
        std::set<std::string> hosts;
        std::vector<int> without;
        for (const auto* facts : users) {
            hosts.insert(facts->node.host);
            if (!facts->node.kernel.has_imex_channel) without.push_back(facts->rank);
        }
        if (hosts.size() < 2 || without.empty()) continue;
        found.push_back({.what = fmt::format("NVLink joins the GPUs of {} nodes, but {} may open "
                                             "nothing in /dev/nvidia-caps-imex-channels",
                                             hosts.size(),
                                             ranks_text(without)),
                         .ranks = without});
    }
    return found;
}

Ailments broken_links(const GpuFacts& gpu) {
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
}

/// Idle GPUs lower the speed of their link, never its width.
Ailments narrow_link(const GpuFacts& gpu) {
    const PciLink& link = gpu.pci.link;
    if (link.width == 0 || link.width >= link.max_width) return {};
    return {{fmt::format(
        "GPU {} runs on {} of {} PCIe lanes", gpu.pci.address, link.width, link.max_width)}};
}

Ailments memory_errors(const GpuFacts& gpu) {
    if (gpu.health.ecc_uncorrected.value_or(0) > 0)
        return {{fmt::format("GPU {} had {} memory error(s) that could not be corrected",
                             gpu.pci.address,
                             *gpu.health.ecc_uncorrected)}};
    if (gpu.health.awaits_reset.value_or(false))
        return {
            {.what = fmt::format("GPU {} waits for a reset to retire bad memory", gpu.pci.address),
             .severity = Severity::warning}};
    return {};
}

Ailments occupied(const GpuFacts& gpu) {
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
        found.push_back({.what = fmt::format("GPU {} has persistence mode off: it starts slowly",
                                             gpu.pci.address),
                         .severity = Severity::info});
    return found;
}

Ailments slowed_down(const GpuFacts& gpu) {
    if (gpu.health.slowed_by.empty()) return {};
    return {{fmt::format(
        "GPU {} is slowed down: {}", gpu.pci.address, fmt::join(gpu.health.slowed_by, ", "))}};
}

const std::array gpu_table{
    DoctorCheck{"G1",
                "no usable driver",
                "GPUs need a loaded driver that is at least as new as the program's CUDA.",
                "nvidia-smi on the node says more; in a container start with --nv or --gpus",
                no_driver,
                Severity::error},
    DoctorCheck{"G2",
                "two ranks on one GPU",
                "NCCL refuses it, and both would run at half speed.",
                "leave CUDA_VISIBLE_DEVICES alone and ask for --gpus-per-node; each rank then "
                "takes its own",
                shared_gpu,
                Severity::error},
    DoctorCheck{"G3",
                "ranks and GPUs do not match",
                "GPUs that nobody uses are paid for.",
                "start one rank for each GPU",
                wrong_number_of_gpus},
    DoctorCheck{"G4",
                "each rank is alone with its GPU",
                "--gpus-per-task hides the others' GPUs, and CUDA cannot map their memory: NCCL "
                "falls back to slower paths or fails.",
                "--gpus-per-node=N without --gpus-per-task, or --gpu-bind=none",
                isolated_gpus},
    DoctorCheck{"G5",
                "CUDA_VISIBLE_DEVICES is wrong",
                "CUDA stops reading at the first word it does not know, and hides the rest.",
                "unset CUDA_VISIBLE_DEVICES, or list indices or UUIDs (nvidia-smi -L)",
                disagrees_with_slurm,
                Severity::error},
    DoctorCheck{"G6",
                "the GPU is far from the cores",
                "Every copy crosses the link between sockets.",
                "'lockstep map' prints a binding near the GPU",
                far_gpu},
    DoctorCheck{"G7",
                "the GPU's place is unknown",
                "The firmware or hypervisor does not say where the GPU is; NCCL guesses.",
                "ask the cloud's staff for NCCL_TOPO_FILE",
                unknown_locality,
                Severity::info},
    DoctorCheck{"G13",
                "GPU instances (MIG) with several ranks",
                "NCCL before 2.30 cannot join instances of one GPU.",
                "ask for whole GPUs, or use one rank",
                mig},
    DoctorCheck{"G14",
                "what training on GPUs needs is missing",
                "Ranks load LibTorch's CUDA part, NCCL and Lockstep's own part by name.",
                "scripts/setup gpu",
                missing_parts,
                Severity::error},
    DoctorCheck{
        "G15",
        "no IMEX channel for NVLink between nodes",
        "NCCL ends where a rank may not share its GPU's memory with a node that NVLink joins.",
        "ask the system's staff for a channel (SwitchType=switch/nvidia_imex in slurm.conf, or "
        "mknod as in NVIDIA's IMEX guide); NCCL_MNNVL_ENABLE=0 goes around NVLink",
        no_imex_channel,
        Severity::error},
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

std::span<const DoctorCheck> gpu_checks() {
    return gpu_table;
}

}  // namespace lockstep
