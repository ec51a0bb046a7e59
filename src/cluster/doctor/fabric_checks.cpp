// SPDX-License-Identifier: Apache-2.0
#include "doctor/families.hpp"
#include "placement/choices.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

Ailments port_down(const DoctorFacts& facts) {
    Ailments found;
    const bool has_other = !active_rdma_ports(facts.node).empty();
    for (const RdmaPort& port : facts.node.rdma_ports)
        if (!port.is_up())
            found.push_back(
                {.what =
                     fmt::format("port {} is {} ({})", port.name(), port.state, port.phys_state),
                 .severity =
                     !has_other && facts.plan.expects_rdma ? Severity::error : Severity::warning});
    return found;
}

using Rates = std::map<std::string, double>;

void keep_best(Rates& rates, const std::string& key, double rate) {
    rates[key] = std::max(rates[key], rate);
}

/// A port slower than its node's fastest of the same kind, or than the same port of other nodes.
/// Storage often has Ethernet of its own beside InfiniBand.
Ailments slow_port(JobRanks ranks) {
    const auto nodes = first_of_nodes(ranks);
    Rates rails;
    for (const auto* facts : nodes)
        for (const auto* port : active_rdma_ports(facts->node))
            keep_best(rails, port->name(), port->rate_gbps);
    Ailments found;
    for (const auto* facts : nodes) {
        Rates layers;
        for (const auto* port : active_rdma_ports(facts->node))
            keep_best(layers, port->link_layer, port->rate_gbps);
        for (const auto* port : active_rdma_ports(facts->node)) {
            const double best = std::max(layers[port->link_layer], rails[port->name()]);
            if (port->rate_gbps < best)
                found.push_back({.what = fmt::format("port {} runs at {} Gbit/s, others at {}",
                                                     port->name(),
                                                     port->rate_gbps,
                                                     best),
                                 .ranks = {facts->rank}});
        }
    }
    return found;
}

Ailments mixed_link_layers(JobRanks ranks) {
    RanksByValue layers;
    for (const auto* facts : first_of_nodes(ranks)) {
        std::set<std::string> here;
        for (const auto* port : active_rdma_ports(facts->node)) here.insert(port->link_layer);
        if (!here.empty()) layers[fmt::format("{}", fmt::join(here, "+"))].push_back(facts->rank);
    }
    const auto has_common = [&](const std::string& layer) {
        return std::ranges::all_of(
            layers, [&](auto& each) { return each.first.find(layer) != each.first.npos; });
    };
    if (layers.size() < 2 || has_common("InfiniBand") || has_common("Ethernet")) return {};
    return {{fmt::format("nodes have no common fabric: {}", values_text(layers))}};
}

Ailments no_rdma(JobRanks ranks) {
    const auto nodes = first_of_nodes(ranks);
    const bool somebody_has = std::ranges::any_of(
        nodes, [](const auto* facts) { return !active_rdma_ports(facts->node).empty(); });
    Ailments found;
    for (const auto* facts : nodes)
        if (active_rdma_ports(facts->node).empty() && (somebody_has || facts->plan.expects_rdma))
            found.push_back({.what = "no active InfiniBand or RoCE port",
                             .fix = somebody_has ? ""
                                                 : "take nodes that have such ports, or drop "
                                                   "--expect-rdma; in a container pass "
                                                   "/dev/infiniband",
                             .ranks = {facts->rank}});
    return found;
}

/// Many servers have a RoCE card that nobody uses: only InfiniBand between nodes surely fails.
Ailments locked_memory(const DoctorFacts& facts) {
    const auto& limit = facts.node.limits.locked_memory_bytes;
    if (facts.node.rdma_ports.empty() || !limit) return {};
    const bool fails = facts.size > facts.local_size &&
                       std::ranges::any_of(active_rdma_ports(facts.node), [](const RdmaPort* port) {
                           return port->link_layer == "InfiniBand";
                       });
    return {{.what = fmt::format("locked memory is limited to {} KiB (ulimit -l)", *limit / 1024),
             .severity = fails ? Severity::error : Severity::warning}};
}

Ailments no_gpu_direct(const DoctorFacts& facts) {
    const KernelFacts& kernel = facts.node.kernel;
    const bool concerns = facts.plan.uses_gpus && !active_rdma_ports(facts.node).empty() &&
                          !visible_gpus(facts).empty();
    if (!concerns || kernel.has_nvidia_peermem || kernel.nvidia_is_open) return {};
    return {{"neither nvidia_peermem nor the open kernel module (dma-buf) is loaded"}};
}

/// NCCL sends straight from the GPU up to class PXB, its default NCCL_NET_GDR_LEVEL.
Ailments far_port(const DoctorFacts& facts) {
    const GpuFacts* gpu = gpu_of(facts);
    if (!facts.plan.uses_gpus || gpu == nullptr) return {};
    auto nearest = PathClass::unknown;
    for (const auto* port : active_rdma_ports(facts.node))
        nearest = std::min(nearest, path_between(facts.node, gpu->pci, port->pci));
    if (nearest == PathClass::unknown || nearest <= PathClass::pxb) return {};
    return {{fmt::format(
        "the port nearest to GPU {} is {} away", gpu->pci.address, path_class_name(nearest))}};
}

Ailments redirected_pci(const DoctorFacts& facts) {
    if (!facts.plan.uses_gpus || active_rdma_ports(facts.node).empty()) return {};
    const KernelFacts& kernel = facts.node.kernel;
    if (facts.system.redirects_pci.value_or(false))
        return {{"a PCIe switch sends traffic between devices through the root complex (ACS)"}};
    const bool passes = kernel.command_line.find("iommu=pt") != std::string::npos;
    if (kernel.has_iommu && !passes && !facts.node.is_container)
        return {{.what = "the IOMMU translates every address (no iommu=pt)",
                 .fix = "ask the system's staff for iommu=pt on the kernel's command line"}};
    if (facts.system.redirects_pci) return {};
    return {{.what = "whether PCIe switches redirect traffic (ACS) is for root to read",
             .severity = Severity::info}};
}

Ailments old_roce(const DoctorFacts& facts) {
    Ailments found;
    for (const auto* port : active_rdma_ports(facts.node))
        if (port->link_layer == "Ethernet" && std::ranges::count(port->gid_types, "RoCE v2") == 0)
            found.push_back({fmt::format("port {} has no RoCE v2 address", port->name())});
    const bool is_set = facts.environment.contains("NCCL_IB_GID_INDEX");
    if (is_set && facts.plan.uses_gpus && !active_rdma_ports(facts.node).empty())
        found.push_back({.what = variable_text(facts, "NCCL_IB_GID_INDEX"),
                         .why = "NCCL chooses the right index by itself from 2.21 on; a fixed one "
                                "breaks when addresses change.",
                         .fix = "unset NCCL_IB_GID_INDEX"});
    return found;
}

Ailments moving_errors(const DoctorFacts& facts) {
    Ailments found;
    for (const auto& [name, count] : facts.system.errors_moved)
        if (count > 0 && facts.local_rank == 0)
            found.push_back({fmt::format("{} rose by {}", name, count)});
    return found;
}

const std::array fabric_table{
    DoctorCheck{"F1",
                "a fabric port is down",
                "Its traffic takes another path, is slower, or fails.",
                "ibstat says more; use another node (--write-exclude)",
                port_down},
    DoctorCheck{"F2",
                "a fabric port is slow",
                "All ranks wait for the slowest link: a bad cable or a port that negotiated less.",
                "use another node (--write-exclude), and tell the system's staff",
                slow_port},
    DoctorCheck{"F3",
                "nodes are on different fabrics",
                "InfiniBand and RoCE do not reach each other.",
                "ask for nodes of one kind (sbatch --constraint)",
                mixed_link_layers,
                Severity::error},
    DoctorCheck{"F4",
                "a node has no fabric",
                "Messages go over TCP: 1 to 10 GB/s instead of 12 to 50 GB/s a port.",
                "ask for nodes of one kind (sbatch --constraint); in a container pass "
                "/dev/infiniband",
                no_rdma},
    DoctorCheck{"F5",
                "locked memory is limited",
                "InfiniBand registers memory, which must be locked: ibv_reg_mr fails.",
                "ulimit -l unlimited; in Slurm PropagateResourceLimitsExcept=MEMLOCK and "
                "LimitMEMLOCK=infinity for slurmd; docker --ulimit memlock=-1",
                locked_memory,
                Severity::error},
    DoctorCheck{"F6",
                "no GPUDirect RDMA",
                "Data of GPUs are copied through the host before they are sent.",
                "modprobe nvidia_peermem, or the open kernel module",
                no_gpu_direct},
    DoctorCheck{"F7",
                "the nearest port is far from the GPU",
                "NCCL does not send straight from the GPU over the processor's root complex.",
                "'lockstep map' shows the classes; NCCL_NET_GDR_LEVEL=PHB forces it, if the "
                "platform is good at it",
                far_port},
    DoctorCheck{"F8",
                "PCIe traffic takes detours",
                "GPUs and ports reach each other through the processor instead of their switch.",
                "ask the system's staff to turn off ACS on bare metal",
                redirected_pci},
    DoctorCheck{"F13",
                "RoCE is not at version 2",
                "Version 1 is not routed and mostly not configured on switches.",
                "have an IP address put on the port's interface",
                old_roce},
    DoctorCheck{"F14",
                "a fabric link makes errors",
                "Retransmissions cost time, and are the first sign of a failing cable.",
                "use another node (--write-exclude), and tell the system's staff",
                moving_errors,
                Severity::warning,
                Pace::slow},
};

}  // namespace

std::span<const DoctorCheck> fabric_checks() {
    return fabric_table;
}

}  // namespace lockstep
