// SPDX-License-Identifier: Apache-2.0
#include "cluster/doctor/patients.hpp"

namespace lockstep::test {
namespace {

/// srun without PMIx: four tasks, each a world of its own.
void become_singletons(Job& job) {
    job.resize(1);
    job[0].size = job[0].local_size = 1;
    job[0].environment = {{"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_PROCID", "0"}};
}

void become_singletons_of_mpich(Job& job) {
    job.resize(1);
    job[0].size = job[0].local_size = 1;
    job[0].environment = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
}

/// A batch script of four tasks that starts the program without srun.
void leave_tasks_idle(Job& job) {
    job.resize(1);
    job[0].size = job[0].local_size = 1;
    job[0].environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}};
}

/// Two threads on the one CPU that the variables name as the binder's.
auto two_threads_by(std::map<std::string, std::string> binder) {
    return [binder](Job& job) {
        job[0].node.allowed_cpus = {0};
        job[0].plan.threads = 2;
        for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_ID"})
            job[0].environment.erase(name);
        job[0].environment.insert(binder.begin(), binder.end());
    };
}

void nest_in_srun(Job& job) {
    job[0].environment["SLURM_STEP_ID"] = "3";
    job[0].environment["SLURM_STEP_NUM_TASKS"] = "1";
}

/// Ranks 0, 2 on the first node and 1, 3 on the second.
void deal_ranks(Job& job) {
    std::swap(job[1], job[2]);
    for (std::size_t rank = 0; rank < job.size(); ++rank) job[rank].rank = static_cast<int>(rank);
}

void make_uneven(Job& job) {
    job[1].node = job[2].node;
}

void bind_all_to_cpu_0(Job& job) {
    for (DoctorFacts& facts : job) facts.node.allowed_cpus = {0};
}

void slow_down_clock(Job& job) {
    job[0].node.governor = "powersave";
    job[0].system.frequency_driver = "acpi-cpufreq";
}

/// Each rank gets one of the two hardware threads of core 0.
void split_a_core(Job& job) {
    job.resize(2);
    const auto threads = job[0].node.cores[0];
    job[0].node.allowed_cpus = {threads[0]};
    job[1].node.allowed_cpus = {threads[1]};
}

/// More ranks on one node than it has cores.
void crowd(Job& job) {
    for (int rank = 2; rank < 8; ++rank) {
        job.push_back(job[0]);
        job.back().rank = job.back().local_rank = rank;
    }
    for (DoctorFacts& facts : job) {
        facts.size = facts.local_size = 8;
        facts.node.allowed_cpus = {0, 1};
    }
}

Job unbound_job() {
    Job job = small_job();
    for (DoctorFacts& facts : job) facts.node.allowed_cpus = {0, 1};
    return job;
}

/// Each rank had a core for `share` of a second, in which `busy` of its CPUs were busy.
auto load(double share, double busy) {
    return [share, busy](Job& job) {
        for (DoctorFacts& facts : job)
            facts.load = {.watched_s = 1, .computed_s = share, .busy_s = busy};
    };
}

}  // namespace

std::vector<Sick> launch_and_cpu_cases() {
    using enum Severity;
    const auto variable = [](const char* name, const char* value) {
        return [name, value](Job& job) { job[0].environment[name] = value; };
    };
    return {
        {"D1", error, "srun --mpi=pmix", small_job, become_singletons},
        {"D1", error, "lockstep train --np 2", small_job, become_singletons_of_mpich},
        {"D1", warning, "1 of the 4 tasks of the SLURM job", small_job, leave_tasks_idle},
        {"D1",
         error,
         "No mpirun is among the programs",
         laptop,
         [](Job& job) { job[0].environment["OMPI_COMM_WORLD_SIZE"] = "4"; }},
        {"D2",
         error,
         "mpirun says rank 1 of 2, MPI says rank 0 of 2",
         small_job,
         [](Job& job) { job[0].environment["OMPI_COMM_WORLD_RANK"] = "1"; }},
        {"D2",
         error,
         "OMPI_COMM_WORLD_LOCAL_RANK=1, but MPI counts this rank as 0",
         small_job,
         variable("OMPI_COMM_WORLD_LOCAL_RANK", "1")},
        {"D2", error, "PMIx says rank 5", small_job, variable("PMIX_RANK", "5")},
        {"D2",
         error,
         "OMPI_COMM_WORLD_SIZE is 'two'",
         small_job,
         variable("OMPI_COMM_WORLD_SIZE", "two")},
        {"D3", error, "2 ranks inside an srun step of 1 tasks", small_job, nest_in_srun},
        {"D3", error, "srun --overlap --mpi=pmix -n 2 lockstep", small_job, nest_in_srun},
        {"D3",
         error,
         "2 launchers of MPI",
         small_job,
         [](Job& job) { job[0].program.ancestors.push_back("/opt/ompi/bin/mpirun"); }},
        {"D4",
         error,
         "libmpi.so.12 are both loaded",
         small_job,
         [](Job& job) { job[1].program.mpi_libraries.push_back("/opt/mpich/libmpi.so.12"); }},
        {"D4",
         warning,
         "started by /opt/ompi/bin/mpirun",
         small_job,
         [](Job& job) { job[1].program.ancestors = {"/opt/ompi/bin/mpirun"}; }},
        {"D5",
         error,
         "Lockstep differs: 0.1.0 on ranks 0-2, 0.2.0 on rank 3",
         cpu_job,
         [](Job& job) { job[3].program.version = "0.2.0"; }},
        {"D6",
         error,
         "thread level 1 of 3",
         small_job,
         [](Job& job) { job[0].program.thread_level = 1; }},
        {"D7", warning, "on different nodes", cpu_job, deal_ranks},
        {"D7", warning, "1 a node on rank 0, 3 a node on ranks 1-3", cpu_job, make_uneven},
        {"D8",
         warning,
         "gds_ds12_lock",
         small_job,
         [](Job& job) { job[0].program.launcher_messages = {"PMIX ERROR in gds_ds12_lock"}; }},
        {"D9",
         warning,
         "120ms behind",
         cpu_job,
         [](Job& job) { job[2].network.clock_offset_s = -0.12; }},
        {"D9",
         warning,
         "1h00m ahead of rank 0's",
         cpu_job,
         [](Job& job) { job[2].network.clock_offset_s = 3600; }},
        {"C1",
         warning,
         "4 threads share CPU 3",
         small_job,
         [](Job& job) {
             job[0].node.allowed_cpus = {3};
             job[0].plan.threads = 4;
         }},
        {"C1",
         warning,
         "--threads 1, or fewer ranks",
         small_job,
         two_threads_by({{"LOCKSTEP_BOUND", "0"}})},
        {"C1",
         warning,
         "unset OMP_PROC_BIND",
         small_job,
         two_threads_by({{"OMP_PROC_BIND", "true"}})},
        {"C1", warning, "slot:PE=2", small_job, two_threads_by({{"OMPI_COMM_WORLD_SIZE", "2"}})},
        {"C1",
         warning,
         "srun --cpus-per-task 2",
         small_job,
         two_threads_by({{"SLURM_STEP_ID", "0"}})},
        {"C1", warning, "without taskset", small_job, two_threads_by({})},
        {"C2", warning, "ranks 0-1 share core 0", small_job, bind_all_to_cpu_0},
        {"C2", warning, "mpirun --bind-to core", small_job, bind_all_to_cpu_0},
        {"C2", warning, "start at most 2 rank(s) on this node (--np 2", small_job, crowd},
        {"C2",
         warning,
         "they overlap",
         cpu_job,
         [](Job& job) { job[0].node.allowed_cpus.push_back(job[1].node.allowed_cpus[0]); }},
        {"C3",
         warning,
         "1 CPU(s) of the 4",
         small_job,
         [](Job& job) {
             job[0].environment["SLURM_CPUS_PER_TASK"] = "4";
             job[0].environment["SLURM_STEP_ID"] = "0";
         }},
        {"C4",
         warning,
         "8 threads of ranks 0-1 on CPUs 0-1",
         small_job,
         [](Job& job) {
             for (DoctorFacts& facts : job) facts.plan.threads = 4;
         }},
        {"C5",
         warning,
         "2 NUMA nodes",
         cpu_job,
         [](Job& job) { job[0].node.allowed_cpus = job[0].node.cpus; }},
        {"C5",
         warning,
         "not allowed",
         cpu_job,
         [](Job& job) { job[0].node.allowed_memory_nodes = {1}; }},
        {"C6",
         warning,
         "0.5 CPUs of time to 1 thread",
         small_job,
         [](Job& job) { job[0].node.control_group.cpu_quota = 0.5; }},
        {"C6",
         warning,
         "stopped this job 9 time(s)",
         small_job,
         [](Job& job) { job[0].system.throttled_moved = 9; }},
        {"C7", warning, "powersave", small_job, slow_down_clock},
        {"C7", warning, "hardware threads of the same cores", gpu_job, split_a_core},
        {"C7",
         info,
         "0.8 of 3.0 GHz",
         small_job,
         [](Job& job) {
             job[0].system.frequency_khz = 800000;
             job[0].system.max_frequency_khz = 3000000;
         }},
        {"C8",
         warning,
         "other processes keep 0.5 of 2 (cores 0-1) busy; ranks 0-1 had a core for 75 %",
         unbound_job,
         load(0.75, 2)},
        {"C8",
         warning,
         "other processes keep 2.0 of 2 (cores 0-1) busy; ranks 0-1 had a core for 0 %",
         unbound_job,
         load(0, 2)},
        {"C8",
         warning,
         "rank 1 had a core for 33 % of the time",
         small_job,
         [](Job& job) { job[1].load = {.watched_s = 0.3, .computed_s = 0.1, .busy_s = 0.1}; }},
        {"C8",
         warning,
         "ask the staff of the cloud",
         small_job,
         [](Job& job) {
             job[1].load = {.watched_s = 1, .computed_s = 0.6, .busy_s = 1, .stolen_s = 0.4};
         }},
        {"C8", info, "other processes keep 3.0 of 16", laptop, load(1, 4)},
    };
}

}  // namespace lockstep::test
