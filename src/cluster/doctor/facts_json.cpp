// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
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
    LOCKSTEP_EACH(record.sparse, facts.speed_gts, facts.max_speed_gts);
    LOCKSTEP_EACH(record.sparse, facts.width, facts.max_width);
}

void describe(Record& record, PciPlace& facts) {
    LOCKSTEP_EACH(record.sparse, facts.address, facts.path);
    record.sparse("numa_node", facts.numa_node, -1);
    cpu_list(record, "cpus", facts.cpus);
    LOCKSTEP_EACH(record.sparse, facts.vendor, facts.device_class, facts.link);
}

void describe(Record& record, GpuPeer& facts) {
    LOCKSTEP_EACH(record.sparse, facts.address, facts.nvlinks, facts.peer_access);
}

void describe(Record& record, GpuHealth& facts) {
    LOCKSTEP_EACH(record.sparse, facts.memory_bytes, facts.memory_used_bytes, facts.processes);
    LOCKSTEP_EACH(record.sparse, facts.compute_mode, facts.keeps_driver_loaded);
    LOCKSTEP_EACH(record.sparse, facts.ecc_uncorrected, facts.awaits_reset, facts.slowed_by);
}

void describe(Record& record, GpuFacts& facts) {
    LOCKSTEP_EACH(record.sparse, facts.pci, facts.uuid, facts.model, facts.has_driver);
    LOCKSTEP_EACH(record.sparse, facts.has_render_node, facts.has_mig, facts.mig_uuids);
    LOCKSTEP_EACH(record.sparse, facts.nvlinks_active, facts.nvlinks_down, facts.has_nvswitch);
    LOCKSTEP_EACH(record.sparse, facts.nvlink_domain, facts.peers, facts.health);
}

void describe(Record& record, RdmaPort& facts) {
    record.sparse("device", facts.device);
    record.sparse("port", facts.port, 1);
    LOCKSTEP_EACH(record.sparse, facts.state, facts.phys_state, facts.rate_gbps, facts.link_layer);
    LOCKSTEP_EACH(record.sparse, facts.gid_types, facts.firmware, facts.interface, facts.pci);
}

void describe(Record& record, NetworkInterface& facts) {
    LOCKSTEP_EACH(record.sparse, facts.name, facts.state, facts.has_carrier, facts.mtu);
    LOCKSTEP_EACH(record.sparse, facts.speed_mbps, facts.addresses, facts.is_virtual);
    if (record.wants("kind", facts.kind != InterfaceKind::other))
        record.text("kind", facts.kind, interface_kind_name, parse_kind, "a kind of interface");
    record.sparse("pci", facts.pci);
}

void describe(Record& record, ControlGroupFacts& facts) {
    record.sparse("version", facts.version);
    cpu_list(record, "cpus", facts.cpus);
    cpu_list(record, "memory_nodes", facts.memory_nodes);
    LOCKSTEP_EACH(record.sparse, facts.cpu_quota, facts.memory_limit_bytes);
    record.sparse("throttled_periods", facts.throttled_periods);
}

void describe(Record& record, ResourceLimits& facts) {
    LOCKSTEP_EACH(record.sparse, facts.locked_memory_bytes, facts.open_files);
    LOCKSTEP_EACH(record.sparse, facts.stack_bytes, facts.processes);
}

void describe(Record& record, KernelFacts& facts) {
    LOCKSTEP_EACH(record.sparse, facts.release, facts.command_line);
    LOCKSTEP_EACH(record.sparse, facts.has_iommu, facts.nvidia_driver);
    LOCKSTEP_EACH(record.sparse, facts.nvidia_is_open, facts.has_nvidia_peermem);
    LOCKSTEP_EACH(record.sparse, facts.has_imex_channel, facts.ptrace_scope);
}

void describe(Record& record, NodeTopology& facts) {
    LOCKSTEP_EACH(record.sparse, facts.host, facts.boot_id, facts.is_container, facts.cpu_model);
    instruction_set(record, "instruction_set", facts.instruction_set);
    LOCKSTEP_EACH(record.sparse, facts.governor, facts.memory_bytes);
    cpu_list(record, "cpus", facts.cpus);
    cpu_list(record, "allowed_cpus", facts.allowed_cpus);
    cpu_list(record, "allowed_memory_nodes", facts.allowed_memory_nodes);
    cpu_lists(record, "cores", facts.cores);
    cpu_lists(record, "l3_groups", facts.l3_groups);
    cpu_lists(record, "sockets", facts.sockets);
    LOCKSTEP_EACH(record.sparse, facts.numa_nodes, facts.gpus, facts.rdma_ports, facts.interfaces);
    LOCKSTEP_EACH(record.sparse, facts.control_group, facts.limits, facts.kernel, facts.notes);
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
    LOCKSTEP_EACH(record.sparse, facts.host, facts.host_id);
    record.sparse("local_rank", facts.local_rank, -1);
    cpu_list(record, "cpus", facts.cpus);
    record.sparse("comm_cpu", facts.comm_cpu);
    record.sparse("threads", facts.threads, 0);
    cpu_list(record, "numa_nodes", facts.numa_nodes);
    LOCKSTEP_EACH(record.sparse, facts.gpu, facts.gpu_uuid, facts.gpu_model);
    LOCKSTEP_EACH(record.sparse, facts.nic, facts.nic_path, facts.is_bound);
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
    LOCKSTEP_EACH(record.sparse, facts.seats, facts.warnings);
}

void describe(Record& record, RankRow& facts) {
    record.sparse("rank", facts.rank, -1);
    LOCKSTEP_EACH(record.sparse, facts.host, facts.host_id);
    cpu_list(record, "cpus", facts.cpus);
    instruction_set(record, "instruction_set", facts.instruction_set);
    LOCKSTEP_EACH(record.sparse, facts.memory_bytes, facts.memory_is_limited);
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
    LOCKSTEP_EACH(record.sparse, plan.uses_gpus, plan.expects_rdma, plan.shared_bytes);
    LOCKSTEP_EACH(record.sparse, plan.memory_bytes, plan.duration_s, plan.run_folder);
}

void describe(Record& record, MissingPart& part) {
    LOCKSTEP_EACH(record.field, part.what, part.why, part.fix);
}

void describe(Record& record, ProgramFacts& program) {
    LOCKSTEP_EACH(record.sparse, program.version, program.mpi_version);
    record.sparse("thread_level", program.thread_level, 3);
    LOCKSTEP_EACH(record.sparse, program.mpi_libraries, program.ancestors, program.nccl_version);
    LOCKSTEP_EACH(record.sparse, program.pmix_version, program.slurm_version);
    LOCKSTEP_EACH(record.sparse, program.cuda_driver, program.cuda_runtime, program.cuda_fault);
    LOCKSTEP_EACH(record.sparse, program.missing_for_gpus, program.launcher_messages);
}

void describe(Record& record, FolderFacts& folder) {
    LOCKSTEP_EACH(record.sparse, folder.path, folder.exists, folder.is_file);
    LOCKSTEP_EACH(record.sparse, folder.is_writable, folder.holds_run);
    LOCKSTEP_EACH(record.sparse, folder.file_system, folder.inode);
    LOCKSTEP_EACH(record.sparse, folder.free_bytes, folder.total_bytes, folder.free_inodes);
}

void describe(Record& record, SystemFacts& system) {
    LOCKSTEP_EACH(record.sparse, system.frequency_khz, system.max_frequency_khz);
    LOCKSTEP_EACH(record.sparse, system.frequency_driver, system.throttled_moved);
    LOCKSTEP_EACH(record.sparse, system.stale_shared_files, system.removes_ipc);
    LOCKSTEP_EACH(record.sparse, system.overcommit, system.host_addresses, system.nccl_files);
    LOCKSTEP_EACH(record.sparse, system.redirects_pci, system.port_errors);
    LOCKSTEP_EACH(record.sparse, system.errors_moved, system.ras_port_owner, system.user);
}

void describe(Record& record, UnreachedAddress& unreached) {
    LOCKSTEP_EACH(record.sparse, unreached.host, unreached.address, unreached.reason);
}

void describe(Record& record, NetworkProbe& probe) {
    LOCKSTEP_EACH(record.sparse, probe.clock_offset_s, probe.tried);
    LOCKSTEP_EACH(record.sparse, probe.unreached, probe.reached, probe.working);
}

void describe(Record& record, WrongSum& sum) {
    LOCKSTEP_EACH(record.sparse, sum.type, sum.count, sum.wrong);
}

void describe(Record& record, PairSpeed& pair) {
    LOCKSTEP_EACH(record.sparse, pair.to_rank, pair.bytes_per_s);
}

void describe(Record& record, LoadFacts& load) {
    LOCKSTEP_EACH(record.sparse, load.watched_s, load.computed_s, load.busy_s, load.stolen_s);
}

void describe(Record& record, SelfTestFacts& test) {
    LOCKSTEP_EACH(record.sparse, test.wrong_sums, test.median_link, test.slow_pairs);
    LOCKSTEP_EACH(record.sparse, test.measured_s, test.memory_s, test.reduced_bytes);
    LOCKSTEP_EACH(record.sparse, test.state_hash, test.not_finite, test.step_s);
}

void describe(Record& record, DoctorFacts& facts) {
    record.sparse("rank", facts.rank);
    record.sparse("size", facts.size, 1);
    record.sparse("local_rank", facts.local_rank);
    record.sparse("local_size", facts.local_size, 1);
    LOCKSTEP_EACH(record.sparse, facts.plan, facts.environment, facts.program);
    LOCKSTEP_EACH(record.sparse, facts.node, facts.system, facts.shared_memory);
    LOCKSTEP_EACH(record.sparse, facts.temporary_folder, facts.run_folder, facts.network);
    LOCKSTEP_EACH(record.sparse, facts.load, facts.self_test, facts.gpu, facts.now_s);
}

}  // namespace lockstep
