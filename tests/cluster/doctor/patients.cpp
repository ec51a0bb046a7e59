// SPDX-License-Identifier: Apache-2.0
#include "cluster/doctor/patients.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::test {
namespace {

FolderFacts good_folder(const std::string& path) {
    return {.path = path,
            .exists = true,
            .is_writable = true,
            .file_system = "tmpfs",
            .inode = 7,
            .free_bytes = std::uint64_t{8} << 30,
            .total_bytes = std::uint64_t{16} << 30,
            .free_inodes = 1000000};
}

void give_address(NodeTopology& node, int number) {
    for (NetworkInterface& each : node.interfaces)
        if (each.kind == InterfaceKind::ethernet)
            each.addresses = {fmt::format("10.1.0.{}/16", number + 1)};
}

/// The local rank's share of whole cores, in order of their first hardware thread.
std::vector<int> share_of(const NodeTopology& node, int local_rank, int each) {
    const auto parts = static_cast<std::size_t>(each);
    const auto index = static_cast<std::size_t>(local_rank);
    const std::size_t size = node.cores.size() / parts;
    std::vector<int> cpus;
    for (std::size_t core = index * size; core < (index + 1) * size; ++core)
        cpus.insert(cpus.end(), node.cores[core].begin(), node.cores[core].end());
    std::ranges::sort(cpus);
    return cpus;
}

std::map<std::string, std::string> environment_of(int rank, int size, int local, int each) {
    return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
            {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
            {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local)},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(each)},
            {"PMIX_RANK", std::to_string(rank)}};
}

DoctorFacts healthy_rank(const NodeTopology& kind, int rank, int size, int each) {
    DoctorFacts facts;
    facts.rank = rank;
    facts.size = size;
    facts.local_rank = rank % each;
    facts.local_size = each;
    facts.environment = environment_of(rank, size, rank % each, each);
    facts.program = {.version = "0.1.0",
                     .mpi_version = "Open MPI v4.1.4",
                     .mpi_libraries = {"/usr/lib/openmpi/libmpi.so.40"},
                     .ancestors = {"/usr/bin/orterun", "/usr/bin/bash"}};
    facts.node = kind;
    facts.node.host = fmt::format("{}{}", kind.host, rank / each);
    facts.node.boot_id += fmt::format("-{}", rank / each);
    if (size > each) give_address(facts.node, rank / each);
    facts.node.allowed_cpus = share_of(kind, rank % each, each);
    facts.shared_memory = good_folder("/dev/shm");
    facts.temporary_folder = good_folder("/tmp");
    facts.system.user = 1000;
    facts.now_s = 1000;
    return facts;
}

SelfTestFacts good_self_test() {
    return {.wrong_sums = {{"lockstep", 1023, 0}},
            .measured_s = 0.010,
            .memory_s = 0.009,
            .reduced_bytes = 1 << 22,
            .state_hash = "abc",
            .step_s = std::vector<double>(24, 0.002)};
}

}  // namespace

Job job_of(const NodeTopology& node, int nodes, int each) {
    Job job;
    for (int rank = 0; rank < nodes * each; ++rank) {
        job.push_back(healthy_rank(node, rank, nodes * each, each));
        job.back().self_test = good_self_test();
        job.back().load = {.watched_s = 0.25, .computed_s = 0.249, .busy_s = 0.25};
        if (nodes > 2) job.back().self_test->median_link = 9e9;
    }
    return job;
}

Job gpu_job() {
    Job job = job_of(node_of("dgx"), 2, 8);
    for (DoctorFacts& facts : job) {
        facts.plan.uses_gpus = facts.plan.expects_rdma = true;
        facts.gpu = facts.node.gpus[static_cast<std::size_t>(facts.local_rank)].pci.address;
        facts.system.redirects_pci = false;
    }
    return job;
}

Job cpu_job() {
    return job_of(node_of("two-socket"), 2, 2);
}

Job small_job() {
    return job_of(node_of("two-core-vm"), 1, 2);
}

Job laptop() {
    NodeTopology node = node_of("cpu16");
    node.governor = "powersave";
    node.kernel.ptrace_scope = 1;
    node.kernel.has_iommu = true;
    node.limits = {8u << 20, 1024, 8u << 20, {}};
    node.interfaces = {{.name = "docker0",
                        .state = "down",
                        .addresses = {"172.17.0.1/16"},
                        .kind = InterfaceKind::docker},
                       {.name = "wlan0",
                        .state = "up",
                        .addresses = {"192.168.1.7/24"},
                        .kind = InterfaceKind::ethernet}};
    Job job = job_of(node, 1, 1);
    job[0].environment.clear();
    job[0].program.ancestors = {"/usr/bin/bash"};
    job[0].system.frequency_driver = "intel_pstate";
    job[0].system.host_addresses = {"127.0.1.1"};
    return job;
}

Job container() {
    NodeTopology node = node_of("cpu16");
    node.is_container = true;
    node.control_group.cpu_quota = 4;
    node.control_group.memory_limit_bytes = std::uint64_t{8} << 30;
    node.limits = {64u << 10, 1048576, 8u << 20, {}};
    node.interfaces = {{.name = "eth0",
                        .state = "up",
                        .addresses = {"172.17.0.2/16"},
                        .is_virtual = true,
                        .kind = InterfaceKind::veth}};
    Job job = job_of(node, 1, 2);
    for (DoctorFacts& facts : job) {
        facts.node.allowed_cpus = node.cpus;
        facts.load->busy_s = 0.5;
        facts.shared_memory.free_bytes = std::uint64_t{1} << 30;
        facts.system.user = 0;
    }
    return job;
}

std::vector<DoctorFinding> found(const std::string& id, const Job& job) {
    return run_checks(job, {.only = {id}});
}

}  // namespace lockstep::test
