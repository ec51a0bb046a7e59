// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/record.hpp"

#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::optional<InterfaceKind> parse_kind(std::string_view name) {
    for (int i = 0; i <= static_cast<int>(InterfaceKind::other); ++i)
        if (const auto kind = static_cast<InterfaceKind>(i); interface_kind_name(kind) == name)
            return kind;
    return {};
}

constexpr std::string_view wanted_list = "a list such as 0-3,8";

std::optional<std::vector<int>> parse_cpus(std::string_view text) {
    return parse_cpu_list(text == "-" ? "" : text);
}

/// CPUs or nodes of memory as the kernel writes them: "0-3,8"; none are left out.
void cpu_list(Record& record, const char* key, std::vector<int>& cpus) {
    if (record.wants(key, !cpus.empty()))
        record.text(key, cpus, cpu_list_text, parse_cpus, wanted_list);
}

void cpu_lists(Record& record, const char* key, std::vector<std::vector<int>>& lists) {
    std::vector<std::string> texts;
    for (const auto& cpus : lists) texts.push_back(cpu_list_text(cpus));
    record.sparse(key, texts);
    if (!record.is_reading()) return;
    lists.clear();
    for (const std::string& text : texts) {
        const auto cpus = parse_cpus(text);
        if (!cpus) throw record.unfit(fmt::format("{}[{}]", key, lists.size()), text, wanted_list);
        lists.push_back(*cpus);
    }
}

/// Reads or writes a level by its name; the lowest level is left out.
void instruction_set(Record& record, const char* key, InstructionSet& level) {
    if (record.wants(key, level != InstructionSet::basic))
        record.text(key, level, instruction_set_name, parse_instruction_set, "an instruction set");
}

}  // namespace

void describe(Record& record, NumaNode& facts) {
    record.sparse("id", facts.id, -1);  // always written
    cpu_list(record, "cpus", facts.cpus);
    record.sparse("memory_bytes", facts.memory_bytes);
}

void describe(Record& record, PciLink& facts) {
    record.sparse("speed_gts", facts.speed_gts);
    record.sparse("max_speed_gts", facts.max_speed_gts);
    record.sparse("width", facts.width);
    record.sparse("max_width", facts.max_width);
}

void describe(Record& record, PciPlace& facts) {
    record.sparse("address", facts.address);
    record.sparse("path", facts.path);
    record.sparse("numa_node", facts.numa_node, -1);
    cpu_list(record, "cpus", facts.cpus);
    record.sparse("vendor", facts.vendor);
    record.sparse("device_class", facts.device_class);
    record.sparse("link", facts.link);
}

void describe(Record& record, GpuPeer& facts) {
    record.sparse("address", facts.address);
    record.sparse("nvlinks", facts.nvlinks);
    record.sparse("peer_access", facts.peer_access);
}

void describe(Record& record, GpuHealth& facts) {
    record.sparse("memory_bytes", facts.memory_bytes);
    record.sparse("memory_used_bytes", facts.memory_used_bytes);
    record.sparse("processes", facts.processes);
    record.sparse("compute_mode", facts.compute_mode);
    record.sparse("keeps_driver_loaded", facts.keeps_driver_loaded);
    record.sparse("ecc_uncorrected", facts.ecc_uncorrected);
    record.sparse("awaits_reset", facts.awaits_reset);
    record.sparse("slowed_by", facts.slowed_by);
}

void describe(Record& record, GpuFacts& facts) {
    record.sparse("pci", facts.pci);
    record.sparse("uuid", facts.uuid);
    record.sparse("model", facts.model);
    record.sparse("has_driver", facts.has_driver);
    record.sparse("has_render_node", facts.has_render_node);
    record.sparse("has_mig", facts.has_mig);
    record.sparse("mig_uuids", facts.mig_uuids);
    record.sparse("nvlinks_active", facts.nvlinks_active);
    record.sparse("nvlinks_down", facts.nvlinks_down);
    record.sparse("has_nvswitch", facts.has_nvswitch);
    record.sparse("nvlink_domain", facts.nvlink_domain);
    record.sparse("peers", facts.peers);
    record.sparse("health", facts.health);
}

void describe(Record& record, RdmaPort& facts) {
    record.sparse("device", facts.device);
    record.sparse("port", facts.port, 1);
    record.sparse("state", facts.state);
    record.sparse("phys_state", facts.phys_state);
    record.sparse("rate_gbps", facts.rate_gbps);
    record.sparse("link_layer", facts.link_layer);
    record.sparse("gid_types", facts.gid_types);
    record.sparse("firmware", facts.firmware);
    record.sparse("interface", facts.interface);
    record.sparse("pci", facts.pci);
}

void describe(Record& record, NetworkInterface& facts) {
    record.sparse("name", facts.name);
    record.sparse("state", facts.state);
    record.sparse("has_carrier", facts.has_carrier);
    record.sparse("mtu", facts.mtu);
    record.sparse("speed_mbps", facts.speed_mbps);
    record.sparse("addresses", facts.addresses);
    record.sparse("is_virtual", facts.is_virtual);
    if (record.wants("kind", facts.kind != InterfaceKind::other))
        record.text("kind", facts.kind, interface_kind_name, parse_kind, "a kind of interface");
    record.sparse("pci", facts.pci);
}

void describe(Record& record, ControlGroupFacts& facts) {
    record.sparse("version", facts.version);
    cpu_list(record, "cpus", facts.cpus);
    cpu_list(record, "memory_nodes", facts.memory_nodes);
    record.sparse("cpu_quota", facts.cpu_quota);
    record.sparse("memory_limit_bytes", facts.memory_limit_bytes);
    record.sparse("throttled_periods", facts.throttled_periods);
}

void describe(Record& record, ResourceLimits& facts) {
    record.sparse("locked_memory_bytes", facts.locked_memory_bytes);
    record.sparse("open_files", facts.open_files);
    record.sparse("stack_bytes", facts.stack_bytes);
    record.sparse("processes", facts.processes);
}

void describe(Record& record, KernelFacts& facts) {
    record.sparse("release", facts.release);
    record.sparse("command_line", facts.command_line);
    record.sparse("has_iommu", facts.has_iommu);
    record.sparse("nvidia_driver", facts.nvidia_driver);
    record.sparse("nvidia_is_open", facts.nvidia_is_open);
    record.sparse("has_nvidia_peermem", facts.has_nvidia_peermem);
    record.sparse("has_imex_channel", facts.has_imex_channel);
    record.sparse("ptrace_scope", facts.ptrace_scope);
}

void describe(Record& record, NodeTopology& facts) {
    record.sparse("host", facts.host);
    record.sparse("boot_id", facts.boot_id);
    record.sparse("is_container", facts.is_container);
    record.sparse("cpu_model", facts.cpu_model);
    instruction_set(record, "instruction_set", facts.instruction_set);
    record.sparse("governor", facts.governor);
    record.sparse("memory_bytes", facts.memory_bytes);
    cpu_list(record, "cpus", facts.cpus);
    cpu_list(record, "allowed_cpus", facts.allowed_cpus);
    cpu_list(record, "allowed_memory_nodes", facts.allowed_memory_nodes);
    cpu_lists(record, "cores", facts.cores);
    cpu_lists(record, "l3_groups", facts.l3_groups);
    cpu_lists(record, "sockets", facts.sockets);
    record.sparse("numa_nodes", facts.numa_nodes);
    record.sparse("gpus", facts.gpus);
    record.sparse("rdma_ports", facts.rdma_ports);
    record.sparse("interfaces", facts.interfaces);
    record.sparse("control_group", facts.control_group);
    record.sparse("limits", facts.limits);
    record.sparse("kernel", facts.kernel);
    record.sparse("notes", facts.notes);
}

void describe(Record& record, LaunchedRank& facts) {
    record.sparse("rank", facts.rank, -1);
    record.sparse("local_rank", facts.local_rank, -1);
    cpu_list(record, "cpus", facts.cpus);
    record.sparse("gpus", facts.gpus);
    cpu_list(record, "offered", facts.offered);
    record.sparse("binds_itself", facts.binds_itself);
}

void describe(Record& record, RankSeat& facts) {
    record.sparse("rank", facts.rank, -1);
    record.sparse("host", facts.host);
    record.sparse("host_id", facts.host_id);
    record.sparse("local_rank", facts.local_rank, -1);
    cpu_list(record, "cpus", facts.cpus);
    record.sparse("comm_cpu", facts.comm_cpu);
    record.sparse("threads", facts.threads, 0);
    cpu_list(record, "numa_nodes", facts.numa_nodes);
    record.sparse("gpu", facts.gpu);
    record.sparse("gpu_uuid", facts.gpu_uuid);
    record.sparse("gpu_model", facts.gpu_model);
    record.sparse("nic", facts.nic);
    record.sparse("nic_path", facts.nic_path);
    record.sparse("is_bound", facts.is_bound);
}

void describe(Record& record, NodeWitness& facts) {
    record.sparse("rank", facts.rank, -1);
    record.sparse("host_id", facts.host_id);
    record.sparse("mpi_node", facts.mpi_node, -1);
    record.sparse("mpi_local_rank", facts.mpi_local_rank, -1);
    record.sparse("launcher_local_rank", facts.launcher_local_rank);
}

void describe(Record& record, Placement& facts) {
    record.sparse("names_hosts", facts.names_hosts, true);
    record.sparse("seats", facts.seats);
    record.sparse("warnings", facts.warnings);
}

void describe(Record& record, RankRow& facts) {
    record.sparse("rank", facts.rank, -1);
    record.sparse("host", facts.host);
    record.sparse("host_id", facts.host_id);
    cpu_list(record, "cpus", facts.cpus);
    instruction_set(record, "instruction_set", facts.instruction_set);
    record.sparse("memory_bytes", facts.memory_bytes);
    record.sparse("memory_is_limited", facts.memory_is_limited);
}

Placement deserialize_placement(std::string_view text, const std::string& origin) {
    auto placement = deserialize<Placement>(text, origin);
    for (std::size_t i = 0; i < placement.seats.size(); ++i)
        check(placement.seats[i].rank == static_cast<int>(i), [&] {
            return Error(
                "E222",
                fmt::format("'{}': seat {} is of rank {}", origin, i, placement.seats[i].rank),
                "a plan has one seat for each rank, in order",
                "write it again with 'lockstep map --format json'");
        });
    return placement;
}

void describe(Record& record, DoctorPlan& plan) {
    record.sparse("threads", plan.threads, 1);
    record.sparse("uses_gpus", plan.uses_gpus);
    record.sparse("expects_rdma", plan.expects_rdma);
    record.sparse("shared_bytes", plan.shared_bytes);
    record.sparse("memory_bytes", plan.memory_bytes);
    record.sparse("duration_s", plan.duration_s);
    record.sparse("run_folder", plan.run_folder);
}

void describe(Record& record, MissingPart& part) {
    record.field("what", part.what);
    record.field("why", part.why);
    record.field("fix", part.fix);
}

void describe(Record& record, ProgramFacts& program) {
    record.sparse("version", program.version);
    record.sparse("mpi_version", program.mpi_version);
    record.sparse("thread_level", program.thread_level, 3);
    record.sparse("mpi_libraries", program.mpi_libraries);
    record.sparse("ancestors", program.ancestors);
    record.sparse("nccl_version", program.nccl_version);
    record.sparse("pmix_version", program.pmix_version);
    record.sparse("slurm_version", program.slurm_version);
    record.sparse("cuda_driver", program.cuda_driver);
    record.sparse("cuda_runtime", program.cuda_runtime);
    record.sparse("cuda_fault", program.cuda_fault);
    record.sparse("missing_for_gpus", program.missing_for_gpus);
    record.sparse("launcher_messages", program.launcher_messages);
}

void describe(Record& record, FolderFacts& folder) {
    record.sparse("path", folder.path);
    record.sparse("exists", folder.exists);
    record.sparse("is_file", folder.is_file);
    record.sparse("is_writable", folder.is_writable);
    record.sparse("file_system", folder.file_system);
    record.sparse("inode", folder.inode);
    record.sparse("free_bytes", folder.free_bytes);
    record.sparse("total_bytes", folder.total_bytes);
    record.sparse("free_inodes", folder.free_inodes);
}

void describe(Record& record, SystemFacts& system) {
    record.sparse("frequency_khz", system.frequency_khz);
    record.sparse("max_frequency_khz", system.max_frequency_khz);
    record.sparse("frequency_driver", system.frequency_driver);
    record.sparse("throttled_moved", system.throttled_moved);
    record.sparse("stale_shared_files", system.stale_shared_files);
    record.sparse("removes_ipc", system.removes_ipc);
    record.sparse("overcommit", system.overcommit);
    record.sparse("host_addresses", system.host_addresses);
    record.sparse("nccl_files", system.nccl_files);
    record.sparse("redirects_pci", system.redirects_pci);
    record.sparse("port_errors", system.port_errors);
    record.sparse("errors_moved", system.errors_moved);
    record.sparse("ras_port_owner", system.ras_port_owner);
    record.sparse("user", system.user);
}

void describe(Record& record, UnreachedAddress& unreached) {
    record.sparse("host", unreached.host);
    record.sparse("address", unreached.address);
    record.sparse("reason", unreached.reason);
}

void describe(Record& record, NetworkProbe& probe) {
    record.sparse("clock_offset_s", probe.clock_offset_s);
    record.sparse("tried", probe.tried);
    record.sparse("unreached", probe.unreached);
    record.sparse("reached", probe.reached);
    record.sparse("working", probe.working);
}

void describe(Record& record, WrongSum& sum) {
    record.sparse("type", sum.type);
    record.sparse("count", sum.count);
    record.sparse("wrong", sum.wrong);
}

void describe(Record& record, PairSpeed& pair) {
    record.sparse("to_rank", pair.to_rank);
    record.sparse("bytes_per_s", pair.bytes_per_s);
}

void describe(Record& record, LoadFacts& load) {
    record.sparse("watched_s", load.watched_s);
    record.sparse("computed_s", load.computed_s);
    record.sparse("busy_s", load.busy_s);
    record.sparse("stolen_s", load.stolen_s);
}

void describe(Record& record, SelfTestFacts& test) {
    record.sparse("wrong_sums", test.wrong_sums);
    record.sparse("median_link", test.median_link);
    record.sparse("slow_pairs", test.slow_pairs);
    record.sparse("measured_s", test.measured_s);
    record.sparse("memory_s", test.memory_s);
    record.sparse("reduced_bytes", test.reduced_bytes);
    record.sparse("state_hash", test.state_hash);
    record.sparse("not_finite", test.not_finite);
    record.sparse("step_s", test.step_s);
}

void describe(Record& record, DoctorFacts& facts) {
    record.sparse("rank", facts.rank);
    record.sparse("size", facts.size, 1);
    record.sparse("local_rank", facts.local_rank);
    record.sparse("local_size", facts.local_size, 1);
    record.sparse("plan", facts.plan);
    record.sparse("environment", facts.environment);
    record.sparse("program", facts.program);
    record.sparse("node", facts.node);
    record.sparse("system", facts.system);
    record.sparse("shared_memory", facts.shared_memory);
    record.sparse("temporary_folder", facts.temporary_folder);
    record.sparse("run_folder", facts.run_folder);
    record.sparse("network", facts.network);
    record.sparse("load", facts.load);
    record.sparse("self_test", facts.self_test);
    record.sparse("gpu", facts.gpu);
    record.sparse("now_s", facts.now_s);
}

}  // namespace lockstep
