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
    cases.check("G1", error, gpu_job)
        .says("no driver is loaded", lose_driver)
        .says("knows CUDA 12.4, this program needs 13.0",
              [](Job& job) {
                  job[0].program.cuda_driver = 12040;
                  job[0].program.cuda_runtime = 13000;
              })
        .says("libcuda",
              [](Job& job) { job[0].program.cuda_fault = "libcuda.so.1 cannot be loaded"; });
    cases.check("G2", error, gpu_job)
        .says("ranks 0-1 use one GPU, 0000:18:00.0", [](Job& job) { job[1].gpu = job[0].gpu; })
        .says("rank 1: CUDA_VISIBLE_DEVICES=0", [](Job& job) {
            for (int rank : {0, 1}) {
                job[static_cast<std::size_t>(rank)].gpu = "";
                job[static_cast<std::size_t>(rank)].environment["CUDA_VISIBLE_DEVICES"] = "0";
            }
        });
    cases.check("G3", error, gpu_job).says("8 rank(s), 4 usable GPU(s)", lose_gpus);
    cases.check("G3", warning, gpu_job).says("nobody uses GPU 0000:f8:00.0", [](Job& job) {
        job.erase(job.begin() + 7);
    });
    cases.check("G4", warning, gpu_job).says("--gpus-per-node", isolate);
    cases.check("G5", error, gpu_job)
        .says("mixes", visible("0,GPU-00000000-0000-0000-0000-000000000001"))
        .says("no list", visible("all"))
        .says("names a GPU that is not there: '9'", visible("0,9"))
        .says("hides all GPUs", visible(""))
        .says("twice", visible("1,1"));
    cases.check("G5", warning, gpu_job).says("Slurm gave this step 1", [](Job& job) {
        job[0].environment["CUDA_VISIBLE_DEVICES"] = "0,1";
        job[0].environment["SLURM_STEP_GPUS"] = "0";
    });
    cases.check("G6", warning, gpu_job).says("is at NUMA node 1", swap_gpus);
    cases.check("G7", info, vm_job).says("no NUMA node", [](Job& job) {
        job[0].node.gpus[2].pci.numa_node = -1;
    });
    cases.check("G8", warning, gpu_job)
        .says("peer access is chipset not supported",
              gpu([](GpuFacts& each) { each.peers[0].peer_access = "chipset not supported"; }))
        .says("2 of 20 NVLinks", gpu([](GpuFacts& each) { each.nvlinks_down = 2; }));
    cases.check("G9", warning, gpu_job).says("8 of 16 PCIe lanes", gpu([](GpuFacts& each) {
                                                 each.pci.link = {2.5, 32, 8, 16};
                                             }));
    cases.check("G10", error, gpu_job).says("1 memory error", gpu([](GpuFacts& each) {
                                                each.health.ecc_uncorrected = 1;
                                            }));
    cases.check("G10", warning, gpu_job).says("waits for a reset", gpu([](GpuFacts& each) {
                                                  each.health.awaits_reset = true;
                                              }));
    cases.check("G11", warning, gpu_job).says("2 process(es) hold 40 GiB", gpu([](GpuFacts& each) {
                                                  each.health = {
                                                      .memory_bytes = std::uint64_t{80} << 30,
                                                      .memory_used_bytes = std::uint64_t{40} << 30,
                                                      .processes = 2};
                                              }));
    cases.check("G11", error, gpu_job).says("closed for computing", gpu([](GpuFacts& each) {
                                                each.health.compute_mode = "prohibited";
                                            }));
    cases.check("G11", info, gpu_job).says("persistence mode off", gpu([](GpuFacts& each) {
                                               each.health.keeps_driver_loaded = false;
                                           }));
    cases.check("G12", warning, gpu_job).says("slowed down: thermal", gpu([](GpuFacts& each) {
                                                  each.health.slowed_by = {"thermal"};
                                              }));
    cases.check("G13", warning, gpu_job).says("MIG", gpu([](GpuFacts& each) {
                                                  each.has_mig = true;
                                              }));
    cases.check("G14", error, gpu_job).says("NCCL is missing: no such file", [](Job& job) {
        job[0].program.missing_for_gpus = {{"NCCL", "no such file", "scripts/setup gpu"}};
    });
    // Two nodes of one rack, of which the second has no channel.
    const auto rack = [](Job& job) {
        for (DoctorFacts& facts : job) {
            for (GpuFacts& each : facts.node.gpus) each.nvlink_domain = "ab.1";
            facts.node.kernel.has_imex_channel = facts.node.host == job[0].node.host;
        }
    };
    cases.check("G15", error, gpu_job)
        .says("NVLink joins the GPUs of 2 nodes, but ranks 8-15 may open nothing", rack)
        .says("switch/nvidia_imex", rack);
    return cases.all();
}

}  // namespace lockstep::test
