// SPDX-License-Identifier: Apache-2.0
#include "cluster/doctor/patients.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t second_node = 8;  // its first rank in gpu_job()

auto on_node(std::size_t first, std::function<void(NodeTopology&)> change) {
    return [first, change](Job& job) {
        for (DoctorFacts& facts : job)
            if (facts.node.host == job[first].node.host) change(facts.node);
    };
}

void lose_ports(NodeTopology& node) {
    for (RdmaPort& port : node.rdma_ports) port.state = "DOWN";
}

void become_roce(NodeTopology& node) {
    std::erase_if(node.rdma_ports, [](auto& port) { return port.link_layer == "Ethernet"; });
    for (RdmaPort& port : node.rdma_ports) port.link_layer = "Ethernet";
}

/// Two fabrics, one on each node.
void part_fabrics(Job& job) {
    on_node(second_node, become_roce)(job);
    on_node(0, [](NodeTopology& node) { node.rdma_ports.pop_back(); })(job);
}

void add_docker(NodeTopology& node) {
    node.interfaces.push_back({.name = "docker0",
                               .state = "up",
                               .addresses = {"172.17.0.1/16"},
                               .is_virtual = true,
                               .kind = InterfaceKind::docker});
}

void choose_docker(Job& job) {
    for (DoctorFacts& facts : job) {
        add_docker(facts.node);
        facts.environment["OMPI_MCA_btl_tcp_if_include"] = "docker0";
    }
}

void choose_by_prefix(Job& job) {
    for (DoctorFacts& facts : job) {
        NetworkInterface more = facts.node.interfaces[0];
        more.name += ".2093";
        more.addresses = {"10.9.0.1/16"};
        facts.node.interfaces.push_back(more);
        facts.environment["NCCL_SOCKET_IFNAME"] = facts.node.interfaces[0].name;
    }
}

void move_network(NodeTopology& node) {
    for (NetworkInterface& each : node.interfaces)
        if (each.kind == InterfaceKind::ethernet) each.addresses = {"10.200.0.1/24"};
}

void set_for_all(Job& job, const char* name, const char* value) {
    for (DoctorFacts& facts : job) facts.environment[name] = value;
}

void move_ports_away(NodeTopology& node) {
    for (RdmaPort& port : node.rdma_ports) port.pci.path = "pci0000:f9/" + port.pci.path;
}

}  // namespace

std::vector<Sick> fabric_cases() {
    using enum Severity;
    return {
        {"F1",
         warning,
         "port mlx5_2:1 is DOWN (Disabled)",
         gpu_job,
         on_node(second_node,
                 [](NodeTopology& node) {
                     node.rdma_ports[2].state = "DOWN";
                     node.rdma_ports[2].phys_state = "Disabled";
                 })},
        {"F1", error, "mlx5_0:1 is DOWN", gpu_job, on_node(0, lose_ports)},
        {"F2",
         warning,
         "mlx5_1:1 runs at 200 Gbit/s, others at 400",
         gpu_job,
         on_node(second_node, [](NodeTopology& node) { node.rdma_ports[1].rate_gbps = 200; })},
        {"F3", error, "Ethernet on rank 8, InfiniBand on rank 0", gpu_job, part_fabrics},
        {"F4",
         warning,
         "no active InfiniBand",
         gpu_job,
         on_node(second_node, [](NodeTopology& node) { node.rdma_ports.clear(); })},
        {"F4",
         warning,
         "or drop --expect-rdma",
         small_job,
         [](Job& job) { job[0].plan.expects_rdma = true; }},
        {"F5",
         error,
         "limited to 64 KiB",
         gpu_job,
         [](Job& job) { job[5].node.limits.locked_memory_bytes = 65536; }},
        {"F6",
         warning,
         "nvidia_peermem",
         gpu_job,
         [](Job& job) { job[0].node.kernel.has_nvidia_peermem = false; }},
        {"F7", warning, "is NODE away", gpu_job, on_node(0, move_ports_away)},
        {"F8", warning, "ACS", gpu_job, [](Job& job) { job[0].system.redirects_pci = true; }},
        {"F8", warning, "iommu=pt", gpu_job, [](Job& job) { job[0].node.kernel.has_iommu = true; }},
        {"F8",
         info,
         "for root to read",
         gpu_job,
         [](Job& job) { job[0].system.redirects_pci.reset(); }},
        {"F9",
         error,
         "OMPI_MCA_btl_tcp_if_include=docker0 chooses docker0",
         cpu_job,
         choose_docker},
        {"F9", warning, "docker0 is a bridge for containers", cpu_job, on_node(0, add_docker)},
        {"F9",
         error,
         "both set",
         cpu_job,
         [](Job& job) {
             set_for_all(job, "OMPI_MCA_oob_tcp_if_include", "lo");
             set_for_all(job, "OMPI_MCA_oob_tcp_if_exclude", "docker0");
         }},
        {"F9", warning, ".2093", gpu_job, choose_by_prefix},
        {"F9",
         error,
         "'ib7', which this node does not have",
         cpu_job,
         [](Job& job) { set_for_all(job, "OMPI_MCA_btl_tcp_if_include", "ib7"); }},
        {"F9", warning, "no common network", cpu_job, on_node(2, move_network)},
        {"F10",
         warning,
         "127.0.1.1",
         cpu_job,
         [](Job& job) { job[0].system.host_addresses = {"127.0.1.1"}; }},
        {"F11",
         error,
         "no connection to b (10.1.0.2): no answer in 2 s",
         cpu_job,
         [](Job& job) {
             job[0].network.unreached = {{"b", "10.1.0.2", "no answer in 2 s"}};
         }},
        {"F11",
         warning,
         "no connection to b",
         cpu_job,
         [](Job& job) {
             job[0].network.unreached = {{"b", "10.1.0.2", "no answer in 2 s"}};
             job[0].network.reached = {"b"};
         }},
        {"F11",
         warning,
         "mpirun --mca btl_tcp_if_include 10.0.0.0/24",
         cpu_job,
         [](Job& job) {
             job[0].network.unreached = {{"b", "10.1.0.2", "no answer in 2 s"}};
             job[0].network.reached = {"b"};
             job[0].network.working = {"10.0.0.0/24"};
         }},
        {"F5",
         warning,
         "64 KiB",
         gpu_job,
         [](Job& job) {
             job.resize(8);
             for (DoctorFacts& facts : job) facts.size = 8;
             job[5].node.limits.locked_memory_bytes = 65536;
         }},
        {"F12",
         warning,
         "1500 on rank 0, 9000 on rank 2",
         cpu_job,
         on_node(2,
                 [](NodeTopology& node) {
                     for (NetworkInterface& each : node.interfaces) each.mtu = 9000;
                 })},
        {"F13",
         warning,
         "port mlx5_8:1 has no RoCE v2",
         gpu_job,
         on_node(0, [](NodeTopology& node) { node.rdma_ports[8].gid_types = {"IB/RoCE v1"}; })},
        {"F13",
         warning,
         "NCCL_IB_GID_INDEX=3",
         gpu_job,
         [](Job& job) { set_for_all(job, "NCCL_IB_GID_INDEX", "3"); }},
        {"F14",
         warning,
         "mlx5_0:1 symbol_error rose by 4",
         gpu_job,
         [](Job& job) { job[0].system.errors_moved["mlx5_0:1 symbol_error"] = 4; }},
        {"F15",
         warning,
         "NCCL_ALGO=Ring",
         gpu_job,
         [](Job& job) { set_for_all(job, "NCCL_ALGO", "Ring"); }},
        {"F15",
         error,
         "NCCL_DEBUG is not set on ranks 1-15",
         gpu_job,
         [](Job& job) { job[0].environment["NCCL_DEBUG"] = "INFO"; }},
        {"F15",
         info,
         "/etc/nccl.conf",
         gpu_job,
         [](Job& job) { job[0].system.nccl_files = {"/etc/nccl.conf"}; }},
        {"F16",
         info,
         "taken by user 1234",
         gpu_job,
         [](Job& job) { job[0].system.ras_port_owner = 1234; }},
    };
}

}  // namespace lockstep::test
