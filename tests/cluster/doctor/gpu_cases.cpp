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
    Job job = job_of(fixture("cloud-vm"), 1, 4);
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
    return {
        {"G1", error, "no driver is loaded", gpu_job, lose_driver},
        {"G1",
         error,
         "knows CUDA 12.4, this program needs 13.0",
         gpu_job,
         [](Job& job) {
             job[0].program.cuda_driver = 12040;
             job[0].program.cuda_runtime = 13000;
         }},
        {"G1",
         error,
         "libcuda",
         gpu_job,
         [](Job& job) { job[0].program.cuda_fault = "libcuda.so.1 cannot be loaded"; }},
        {"G2",
         error,
         "ranks 0-1 use one GPU, 0000:18:00.0",
         gpu_job,
         [](Job& job) { job[1].gpu = job[0].gpu; }},
        {"G2",
         error,
         "rank 1: CUDA_VISIBLE_DEVICES=0",
         gpu_job,
         [](Job& job) {
             for (int rank : {0, 1}) {
                 job[static_cast<std::size_t>(rank)].gpu = "";
                 job[static_cast<std::size_t>(rank)].environment["CUDA_VISIBLE_DEVICES"] = "0";
             }
         }},
        {"G3", error, "8 rank(s), 4 usable GPU(s)", gpu_job, lose_gpus},
        {"G3",
         warning,
         "nobody uses GPU 0000:f8:00.0",
         gpu_job,
         [](Job& job) { job.erase(job.begin() + 7); }},
        {"G4", warning, "--gpus-per-node", gpu_job, isolate},
        {"G5", error, "mixes", gpu_job, visible("0,GPU-00000000-0000-0000-0000-000000000001")},
        {"G5", error, "no list", gpu_job, visible("all")},
        {"G5", error, "names a GPU that is not there: '9'", gpu_job, visible("0,9")},
        {"G5", error, "hides all GPUs", gpu_job, visible("")},
        {"G5", error, "twice", gpu_job, visible("1,1")},
        {"G5",
         warning,
         "Slurm gave this step 1",
         gpu_job,
         [](Job& job) {
             job[0].environment["CUDA_VISIBLE_DEVICES"] = "0,1";
             job[0].environment["SLURM_STEP_GPUS"] = "0";
         }},
        {"G6", warning, "is at NUMA node 1", gpu_job, swap_gpus},
        {"G7",
         info,
         "no NUMA node",
         vm_job,
         [](Job& job) { job[0].node.gpus[2].pci.numa_node = -1; }},
        {"G8", warning, "peer access is chipset not supported", gpu_job, gpu([](GpuFacts& each) {
             each.peers[0].peer_access = "chipset not supported";
         })},
        {"G8", warning, "2 of 20 NVLinks", gpu_job, gpu([](GpuFacts& each) {
             each.nvlinks_down = 2;
         })},
        {"G9", warning, "8 of 16 PCIe lanes", gpu_job, gpu([](GpuFacts& each) {
             each.pci.link = {2.5, 32, 8, 16};
         })},
        {"G10", error, "1 memory error", gpu_job, gpu([](GpuFacts& each) {
             each.health.ecc_uncorrected = 1;
         })},
        {"G10", warning, "waits for a reset", gpu_job, gpu([](GpuFacts& each) {
             each.health.awaits_reset = true;
         })},
        {"G11", warning, "2 process(es) hold 40 GiB", gpu_job, gpu([](GpuFacts& each) {
             each.health = {.memory_bytes = std::uint64_t{80} << 30,
                            .memory_used_bytes = std::uint64_t{40} << 30,
                            .processes = 2};
         })},
        {"G11", error, "closed for computing", gpu_job, gpu([](GpuFacts& each) {
             each.health.compute_mode = "prohibited";
         })},
        {"G11", info, "persistence mode off", gpu_job, gpu([](GpuFacts& each) {
             each.health.keeps_driver_loaded = false;
         })},
        {"G12", warning, "slowed down: thermal", gpu_job, gpu([](GpuFacts& each) {
             each.health.slowed_by = {"thermal"};
         })},
        {"G13", warning, "MIG", gpu_job, gpu([](GpuFacts& each) { each.has_mig = true; })},
        {"G14",
         error,
         "NCCL is missing: no such file",
         gpu_job,
         [](Job& job) {
             job[0].program.missing_for_gpus = {{"NCCL", "no such file", "scripts/setup gpu"}};
         }},
    };
}

}  // namespace lockstep::test
