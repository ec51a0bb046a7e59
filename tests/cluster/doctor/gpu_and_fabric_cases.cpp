// SPDX-License-Identifier: Apache-2.0
#include "cluster/doctor/patients.hpp"

namespace lockstep::test {
namespace {

/// --gpus-per-task: the driver shows each rank one GPU, PCI shows all.
void isolate(Job& job) {
    for (DoctorFacts& facts : job)
        for (std::size_t i = 0; i < facts.node.gpus.size(); ++i)
            facts.node.gpus[i].has_driver = static_cast<int>(i) == facts.local_rank;
}

void swap_gpus(Job& job) {
    std::swap(job[0].gpu, job[7].gpu);
}

void lose_driver(Job& job) {
    for (GpuFacts& gpu : job[0].node.gpus) gpu.has_driver = false;
    job[0].node.kernel.nvidia_driver = "";
    job[0].gpu = "";
}

void lose_gpus(Job& job) {
    for (DoctorFacts& facts : job) {
        facts.node.gpus.resize(4);
        facts.gpu = "";
    }
}

Job vm_job() {
    Job job = job_of(node_of("cloud-vm"), 1, 4);
    for (DoctorFacts& facts : job) facts.plan.uses_gpus = true;
    for (DoctorFacts& facts : job) {
        facts.node.numa_nodes = {{0, {0, 1}, 1u << 30}, {1, {2, 3}, 1u << 30}};
        for (GpuFacts& gpu : facts.node.gpus) gpu.pci.numa_node = 0;
        facts.node.allowed_cpus = {0, 1};
    }
    return job;
}

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

std::vector<Sick> gpu_cases() {
    using enum Severity;
    const auto visible = [](const char* value) {
        return [value](Job& job) { job[0].environment["CUDA_VISIBLE_DEVICES"] = value; };
    };
    const auto gpu = [](auto change) {
        return [change](Job& job) { change(job[3].node.gpus[3]); };
    };
    SickJobs cases;
    cases.check("G1", error, gpu_job);
    cases.says("no driver is loaded", lose_driver);
    cases.says("knows CUDA 12.4, this program needs 13.0", [](Job& job) {
        job[0].program.cuda_driver = 12040;
        job[0].program.cuda_runtime = 13000;
    });
    cases.says("libcuda",
               [](Job& job) { job[0].program.cuda_fault = "libcuda.so.1 cannot be loaded"; });
    cases.check("G2", error, gpu_job);
    cases.says("ranks 0-1 use one GPU, 0000:18:00.0", [](Job& job) { job[1].gpu = job[0].gpu; });
    cases.says("rank 1: CUDA_VISIBLE_DEVICES=0", [](Job& job) {
        for (int rank : {0, 1}) {
            job[static_cast<std::size_t>(rank)].gpu = "";
            job[static_cast<std::size_t>(rank)].environment["CUDA_VISIBLE_DEVICES"] = "0";
        }
    });
    cases.check("G3", error, gpu_job);
    cases.says("8 rank(s), 4 usable GPU(s)", lose_gpus);
    cases.check("G3", warning, gpu_job);
    cases.says("nobody uses GPU 0000:f8:00.0", [](Job& job) { job.erase(job.begin() + 7); });
    cases.check("G4", warning, gpu_job);
    cases.says("--gpus-per-node", isolate);
    cases.check("G5", error, gpu_job);
    cases.says("mixes", visible("0,GPU-00000000-0000-0000-0000-000000000001"));
    cases.says("no list", visible("all"));
    cases.says("names a GPU that is not there: '9'", visible("0,9"));
    cases.says("hides all GPUs", visible(""));
    cases.says("twice", visible("1,1"));
    cases.check("G5", warning, gpu_job);
    cases.says("Slurm gave this step 1", [](Job& job) {
        job[0].environment["CUDA_VISIBLE_DEVICES"] = "0,1";
        job[0].environment["SLURM_STEP_GPUS"] = "0";
    });
    cases.check("G6", warning, gpu_job);
    cases.says("is at NUMA node 1", swap_gpus);
    cases.check("G7", info, vm_job);
    cases.says("no NUMA node", [](Job& job) { job[0].node.gpus[2].pci.numa_node = -1; });
    cases.check("G8", warning, gpu_job);
    cases.says("peer access is chipset not supported",
               gpu([](GpuFacts& each) { each.peers[0].peer_access = "chipset not supported"; }));
    cases.says("2 of 20 NVLinks", gpu([](GpuFacts& each) { each.nvlinks_down = 2; }));
    cases.check("G9", warning, gpu_job);
    cases.says("8 of 16 PCIe lanes", gpu([](GpuFacts& each) { each.pci.link = {2.5, 32, 8, 16}; }));
    const auto health = [&](auto member, auto value) {
        return gpu([=](GpuFacts& each) { each.health.*member = value; });
    };
    using Texts = std::vector<std::string>;
    cases.check("G10", error, gpu_job);
    cases.says("1 memory error", health(&GpuHealth::ecc_uncorrected, 1));
    cases.check("G10", warning, gpu_job);
    cases.says("waits for a reset", health(&GpuHealth::awaits_reset, true));
    cases.check("G11", warning, gpu_job);
    cases.says("2 process(es) hold 40 GiB", gpu([](GpuFacts& each) {
                   each.health = {.memory_bytes = std::uint64_t{80} << 30,
                                  .memory_used_bytes = std::uint64_t{40} << 30,
                                  .processes = 2};
               }));
    cases.check("G11", error, gpu_job);
    cases.says("closed for computing", health(&GpuHealth::compute_mode, "prohibited"));
    cases.check("G11", info, gpu_job);
    cases.says("persistence mode off", health(&GpuHealth::keeps_driver_loaded, false));
    cases.check("G12", warning, gpu_job);
    cases.says("slowed down: thermal", health(&GpuHealth::slowed_by, Texts{"thermal"}));
    cases.check("G13", warning, gpu_job);
    cases.says("MIG", gpu([](GpuFacts& each) { each.has_mig = true; }));
    cases.check("G14", error, gpu_job);
    cases.says("NCCL is missing: no such file", [](Job& job) {
        job[0].program.missing_for_gpus = {{"NCCL", "no such file", "scripts/setup gpu"}};
    });
    // Two nodes of one rack, of which the second has no channel.
    const auto rack = [](Job& job) {
        for (DoctorFacts& facts : job) {
            for (GpuFacts& each : facts.node.gpus) each.nvlink_domain = "ab.1";
            facts.node.kernel.has_imex_channel = facts.node.host == job[0].node.host;
        }
    };
    cases.check("G15", error, gpu_job);
    cases.says("NVLink joins the GPUs of 2 nodes, but ranks 8-15 may open nothing", rack);
    cases.says("switch/nvidia_imex", rack);
    return cases.all();
}

std::vector<Sick> fabric_cases() {
    using enum Severity;
    SickJobs cases;
    cases.check("F1", warning, gpu_job);
    cases.says("port mlx5_2:1 is DOWN (Disabled)", on_node(second_node, [](NodeTopology& node) {
                   node.rdma_ports[2].state = "DOWN";
                   node.rdma_ports[2].phys_state = "Disabled";
               }));
    cases.check("F1", error, gpu_job);
    cases.says("mlx5_0:1 is DOWN", on_node(0, lose_ports));
    cases.check("F2", warning, gpu_job);
    cases.says(
        "mlx5_1:1 runs at 200 Gbit/s, others at 400",
        on_node(second_node, [](NodeTopology& node) { node.rdma_ports[1].rate_gbps = 200; }));
    cases.check("F3", error, gpu_job);
    cases.says("Ethernet on rank 8, InfiniBand on rank 0", part_fabrics);
    cases.check("F4", warning, gpu_job);
    cases.says("no active InfiniBand",
               on_node(second_node, [](NodeTopology& node) { node.rdma_ports.clear(); }));
    cases.check("F4", warning, small_job);
    cases.says("or drop --expect-rdma", [](Job& job) { job[0].plan.expects_rdma = true; });
    cases.check("F5", error, gpu_job);
    cases.says("limited to 64 KiB",
               [](Job& job) { job[5].node.limits.locked_memory_bytes = 65536; });
    cases.check("F6", warning, gpu_job);
    cases.says("nvidia_peermem", [](Job& job) { job[0].node.kernel.has_nvidia_peermem = false; });
    cases.check("F7", warning, gpu_job);
    cases.says("is NODE away", on_node(0, move_ports_away));
    cases.check("F8", warning, gpu_job);
    cases.says("ACS", [](Job& job) { job[0].system.redirects_pci = true; });
    cases.says("iommu=pt", [](Job& job) { job[0].node.kernel.has_iommu = true; });
    cases.check("F8", info, gpu_job);
    cases.says("for root to read", [](Job& job) { job[0].system.redirects_pci.reset(); });
    cases.check("F9", error, cpu_job);
    cases.says("OMPI_MCA_btl_tcp_if_include=docker0 chooses docker0", choose_docker);
    cases.check("F9", warning, cpu_job);
    cases.says("docker0 is a bridge for containers", on_node(0, add_docker));
    cases.check("F9", error, cpu_job);
    cases.says("both set", [](Job& job) {
        set_for_all(job, "OMPI_MCA_oob_tcp_if_include", "lo");
        set_for_all(job, "OMPI_MCA_oob_tcp_if_exclude", "docker0");
    });
    cases.check("F9", warning, gpu_job);
    cases.says(".2093", choose_by_prefix);
    cases.check("F9", error, cpu_job);
    cases.says("'ib7', which this node does not have",
               [](Job& job) { set_for_all(job, "OMPI_MCA_btl_tcp_if_include", "ib7"); });
    cases.check("F9", warning, cpu_job);
    cases.says("no common network", on_node(2, move_network));
    cases.check("F10", warning, cpu_job);
    cases.says("127.0.1.1", [](Job& job) { job[0].system.host_addresses = {"127.0.1.1"}; });
    cases.check("F11", error, cpu_job);
    cases.says("no connection to b (10.1.0.2): no answer in 2 s", [](Job& job) {
        job[0].network.unreached = {{"b", "10.1.0.2", "no answer in 2 s"}};
    });
    cases.check("F11", warning, cpu_job);
    cases.says("no connection to b", [](Job& job) {
        job[0].network.unreached = {{"b", "10.1.0.2", "no answer in 2 s"}};
        job[0].network.reached = {"b"};
    });
    cases.says("mpirun --mca btl_tcp_if_include 10.0.0.0/24", [](Job& job) {
        job[0].network.unreached = {{"b", "10.1.0.2", "no answer in 2 s"}};
        job[0].network.reached = {"b"};
        job[0].network.working = {"10.0.0.0/24"};
    });
    cases.check("F5", warning, gpu_job);
    cases.says("64 KiB", [](Job& job) {
        job.resize(8);
        for (DoctorFacts& facts : job) facts.size = 8;
        job[5].node.limits.locked_memory_bytes = 65536;
    });
    cases.check("F12", warning, cpu_job);
    cases.says("1500 on rank 0, 9000 on rank 2", on_node(2, [](NodeTopology& node) {
                   for (NetworkInterface& each : node.interfaces) each.mtu = 9000;
               }));
    cases.check("F13", warning, gpu_job);
    cases.says("port mlx5_8:1 has no RoCE v2", on_node(0, [](NodeTopology& node) {
                   node.rdma_ports[8].gid_types = {"IB/RoCE v1"};
               }));
    cases.says("NCCL_IB_GID_INDEX=3", [](Job& job) { set_for_all(job, "NCCL_IB_GID_INDEX", "3"); });
    cases.check("F14", warning, gpu_job);
    cases.says("mlx5_0:1 symbol_error rose by 4",
               [](Job& job) { job[0].system.errors_moved["mlx5_0:1 symbol_error"] = 4; });
    cases.check("F15", warning, gpu_job);
    cases.says("NCCL_ALGO=Ring", [](Job& job) { set_for_all(job, "NCCL_ALGO", "Ring"); });
    cases.check("F15", error, gpu_job);
    cases.says("NCCL_DEBUG is not set on ranks 1-15",
               [](Job& job) { job[0].environment["NCCL_DEBUG"] = "INFO"; });
    cases.check("F15", info, gpu_job);
    cases.says("/etc/nccl.conf", [](Job& job) { job[0].system.nccl_files = {"/etc/nccl.conf"}; });
    cases.check("F16", info, gpu_job);
    cases.says("taken by user 1234", [](Job& job) { job[0].system.ras_port_owner = 1234; });
    return cases.all();
}

}  // namespace lockstep::test
