// SPDX-License-Identifier: Apache-2.0
// The fields of a topology, each named once: the writer and the reader of JSON walk over them.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include "facts_json.hpp"

namespace lockstep {

// on(key, field) or on(key, field, default) where that is not the type's own.

template <class Walker, FactsOf<NumaNode> Facts>
void walk(Walker& on, Facts& facts) {
    on("id", facts.id, -1);  // always written
    on("cpus", facts.cpus);
    on("memory_bytes", facts.memory_bytes);
}

template <class Walker, FactsOf<PciLink> Facts>
void walk(Walker& on, Facts& facts) {
    on("speed_gts", facts.speed_gts);
    on("max_speed_gts", facts.max_speed_gts);
    on("width", facts.width);
    on("max_width", facts.max_width);
}

template <class Walker, FactsOf<PciPlace> Facts>
void walk(Walker& on, Facts& facts) {
    on("address", facts.address);
    on("path", facts.path);
    on("numa_node", facts.numa_node, -1);
    on("cpus", facts.cpus);
    on("vendor", facts.vendor);
    on("device_class", facts.device_class);
    on("link", facts.link);
}

template <class Walker, FactsOf<GpuPeer> Facts>
void walk(Walker& on, Facts& facts) {
    on("address", facts.address);
    on("nvlinks", facts.nvlinks);
    on("peer_access", facts.peer_access);
}

template <class Walker, FactsOf<GpuHealth> Facts>
void walk(Walker& on, Facts& facts) {
    on("memory_bytes", facts.memory_bytes);
    on("memory_used_bytes", facts.memory_used_bytes);
    on("processes", facts.processes);
    on("compute_mode", facts.compute_mode);
    on("keeps_driver_loaded", facts.keeps_driver_loaded);
    on("ecc_uncorrected", facts.ecc_uncorrected);
    on("awaits_reset", facts.awaits_reset);
    on("slowed_by", facts.slowed_by);
}

template <class Walker, FactsOf<GpuFacts> Facts>
void walk(Walker& on, Facts& facts) {
    on("pci", facts.pci);
    on("uuid", facts.uuid);
    on("model", facts.model);
    on("has_driver", facts.has_driver);
    on("has_render_node", facts.has_render_node);
    on("has_mig", facts.has_mig);
    on("mig_uuids", facts.mig_uuids);
    on("nvlinks_active", facts.nvlinks_active);
    on("nvlinks_down", facts.nvlinks_down);
    on("has_nvswitch", facts.has_nvswitch);
    on("peers", facts.peers);
    on("health", facts.health);
}

template <class Walker, FactsOf<RdmaPort> Facts>
void walk(Walker& on, Facts& facts) {
    on("device", facts.device);
    on("port", facts.port, 1);
    on("state", facts.state);
    on("phys_state", facts.phys_state);
    on("rate_gbps", facts.rate_gbps);
    on("link_layer", facts.link_layer);
    on("gid_types", facts.gid_types);
    on("firmware", facts.firmware);
    on("interface", facts.interface);
    on("pci", facts.pci);
}

template <class Walker, FactsOf<NetworkInterface> Facts>
void walk(Walker& on, Facts& facts) {
    on("name", facts.name);
    on("state", facts.state);
    on("has_carrier", facts.has_carrier);
    on("mtu", facts.mtu);
    on("speed_mbps", facts.speed_mbps);
    on("addresses", facts.addresses);
    on("is_virtual", facts.is_virtual);
    on("kind", facts.kind, InterfaceKind::other);
    on("pci", facts.pci);
}

template <class Walker, FactsOf<ControlGroupFacts> Facts>
void walk(Walker& on, Facts& facts) {
    on("version", facts.version);
    on("cpus", facts.cpus);
    on("memory_nodes", facts.memory_nodes);
    on("cpu_quota", facts.cpu_quota);
    on("memory_limit_bytes", facts.memory_limit_bytes);
    on("throttled_periods", facts.throttled_periods);
}

template <class Walker, FactsOf<ResourceLimits> Facts>
void walk(Walker& on, Facts& facts) {
    on("locked_memory_bytes", facts.locked_memory_bytes);
    on("open_files", facts.open_files);
    on("stack_bytes", facts.stack_bytes);
    on("processes", facts.processes);
}

template <class Walker, FactsOf<KernelFacts> Facts>
void walk(Walker& on, Facts& facts) {
    on("release", facts.release);
    on("command_line", facts.command_line);
    on("has_iommu", facts.has_iommu);
    on("nvidia_driver", facts.nvidia_driver);
    on("nvidia_is_open", facts.nvidia_is_open);
    on("has_nvidia_peermem", facts.has_nvidia_peermem);
    on("ptrace_scope", facts.ptrace_scope);
}

template <class Walker, FactsOf<NodeTopology> Facts>
void walk(Walker& on, Facts& facts) {
    on("host", facts.host);
    on("boot_id", facts.boot_id);
    on("is_container", facts.is_container);
    on("cpu_model", facts.cpu_model);
    on("instruction_set", facts.instruction_set, InstructionSet::basic);
    on("governor", facts.governor);
    on("memory_bytes", facts.memory_bytes);
    on("cpus", facts.cpus);
    on("allowed_cpus", facts.allowed_cpus);
    on("allowed_memory_nodes", facts.allowed_memory_nodes);
    on("cores", facts.cores);
    on("l3_groups", facts.l3_groups);
    on("sockets", facts.sockets);
    on("numa_nodes", facts.numa_nodes);
    on("gpus", facts.gpus);
    on("rdma_ports", facts.rdma_ports);
    on("interfaces", facts.interfaces);
    on("control_group", facts.control_group);
    on("limits", facts.limits);
    on("kernel", facts.kernel);
    on("notes", facts.notes);
}

}  // namespace lockstep
