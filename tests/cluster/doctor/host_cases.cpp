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

Job run_job() {
    Job job = cpu_job();
    for (DoctorFacts& facts : job) {
        facts.run_folder = {.path = "runs/a",
                            .exists = true,
                            .is_writable = true,
                            .file_system = "nfs",
                            .inode = 42,
                            .free_bytes = std::uint64_t{1} << 40};
        facts.environment["SLURM_JOB_END_TIME"] = "8200";
        facts.plan.duration_s = 3600;
    }
    return job;
}

auto need_shared_memory(std::uint64_t gib) {
    return [gib](Job& job) { job[0].plan.shared_bytes = gib << 30; };
}

/// Both nodes measured this of the link between them.
auto link_of(double bytes_per_s, double interface_mbps) {
    return [bytes_per_s, interface_mbps](Job& job) {
        job[0].self_test->slow_pairs = {{2, bytes_per_s}};
        job[2].self_test->slow_pairs = {{0, bytes_per_s}};
        for (DoctorFacts& facts : job)
            for (NetworkInterface& each : facts.node.interfaces) each.speed_mbps = interface_mbps;
    };
}

Job three_nodes() {
    return job_of(node_of("two-socket"), 3, 1);
}

}  // namespace

std::vector<Sick> launch_and_cpu_cases() {
    using enum Severity;
    const auto variable = [](const char* name, const char* value) {
        return [name, value](Job& job) { job[0].environment[name] = value; };
    };
    SickJobs cases;
    cases.check("D1", error, small_job);
    cases.says("srun --mpi=pmix", become_singletons);
    cases.says("lockstep train --np 2", become_singletons_of_mpich);
    cases.check("D1", warning, small_job);
    cases.says("1 of the 4 tasks of the SLURM job", leave_tasks_idle);
    cases.check("D1", error, laptop);
    cases.says("No mpirun is among the programs",
               [](Job& job) { job[0].environment["OMPI_COMM_WORLD_SIZE"] = "4"; });
    cases.check("D2", error, small_job);
    cases.says("mpirun says rank 1 of 2, MPI says rank 0 of 2",
               [](Job& job) { job[0].environment["OMPI_COMM_WORLD_RANK"] = "1"; });
    cases.says("OMPI_COMM_WORLD_LOCAL_RANK=1, but MPI counts this rank as 0",
               variable("OMPI_COMM_WORLD_LOCAL_RANK", "1"));
    cases.says("PMIx says rank 5", variable("PMIX_RANK", "5"));
    cases.says("OMPI_COMM_WORLD_SIZE is 'two'", variable("OMPI_COMM_WORLD_SIZE", "two"));
    cases.check("D3", error, small_job);
    cases.says("2 ranks inside an srun step of 1 tasks", nest_in_srun);
    cases.says("srun --overlap --mpi=pmix -n 2 lockstep", nest_in_srun);
    cases.says("2 launchers of MPI",
               [](Job& job) { job[0].program.ancestors.push_back("/opt/ompi/bin/mpirun"); });
    cases.check("D4", error, small_job);
    cases.says("libmpi.so.12 are both loaded",
               [](Job& job) { job[1].program.mpi_libraries.push_back("/opt/mpich/libmpi.so.12"); });
    cases.check("D4", warning, small_job);
    cases.says("started by /opt/ompi/bin/mpirun",
               [](Job& job) { job[1].program.ancestors = {"/opt/ompi/bin/mpirun"}; });
    cases.check("D5", error, cpu_job);
    cases.says("Lockstep differs: 0.1.0 on ranks 0-2, 0.2.0 on rank 3",
               [](Job& job) { job[3].program.version = "0.2.0"; });
    cases.check("D6", error, small_job);
    cases.says("thread level 1 of 3", [](Job& job) { job[0].program.thread_level = 1; });
    cases.check("D7", warning, cpu_job);
    cases.says("on different nodes", deal_ranks);
    cases.says("1 a node on rank 0, 3 a node on ranks 1-3", make_uneven);
    cases.check("D8", warning, small_job);
    cases.says("gds_ds12_lock", [](Job& job) {
        job[0].program.launcher_messages = {"PMIX ERROR in gds_ds12_lock"};
    });
    cases.check("D9", warning, cpu_job);
    cases.says("120ms behind", [](Job& job) { job[2].network.clock_offset_s = -0.12; });
    cases.says("1h00m ahead of rank 0's", [](Job& job) { job[2].network.clock_offset_s = 3600; });
    const auto old_slurm = [](Job& job) {
        job[0].program.pmix_version = 50008;
        job[0].program.slurm_version = 250503;
        job[0].environment.erase("OMPI_COMM_WORLD_SIZE");
    };
    cases.check("D10", warning, small_job);
    cases.says("PMIx 5.0.8 hangs in MPI_Init under srun of Slurm before 25.11.2", old_slurm);
    cases.says("The source is openpmix/openpmix#3645", old_slurm);
    cases.says("start the ranks by mpirun", old_slurm);
    cases.says("NCCL 2.28.3 is known to hang or crash",
               [](Job& job) { job[0].program.nccl_version = "2.28.3"; });
    cases.check("C1", warning, small_job);
    cases.says("4 threads share CPU 3", [](Job& job) {
        job[0].node.allowed_cpus = {3};
        job[0].plan.threads = 4;
    });
    cases.says("--threads 1, or fewer ranks", two_threads_by({{"LOCKSTEP_BOUND", "0"}}));
    cases.says("unset OMP_PROC_BIND", two_threads_by({{"OMP_PROC_BIND", "true"}}));
    cases.says("slot:PE=2", two_threads_by({{"OMPI_COMM_WORLD_SIZE", "2"}}));
    cases.says("srun --cpus-per-task 2", two_threads_by({{"SLURM_STEP_ID", "0"}}));
    cases.says("without taskset", two_threads_by({}));
    cases.check("C2", warning, small_job);
    cases.says("ranks 0-1 share core 0", bind_all_to_cpu_0);
    cases.says("mpirun --bind-to core", bind_all_to_cpu_0);
    cases.says("start at most 2 rank(s) on this node (--np 2", crowd);
    cases.check("C2", warning, cpu_job);
    cases.says("they overlap",
               [](Job& job) { job[0].node.allowed_cpus.push_back(job[1].node.allowed_cpus[0]); });
    cases.check("C3", warning, small_job);
    cases.says("1 CPU(s) of the 4", [](Job& job) {
        job[0].environment["SLURM_CPUS_PER_TASK"] = "4";
        job[0].environment["SLURM_STEP_ID"] = "0";
    });
    cases.check("C4", warning, small_job);
    cases.says("8 threads of ranks 0-1 on CPUs 0-1", [](Job& job) {
        for (DoctorFacts& facts : job) facts.plan.threads = 4;
    });
    cases.check("C5", warning, cpu_job);
    cases.says("2 NUMA nodes", [](Job& job) { job[0].node.allowed_cpus = job[0].node.cpus; });
    cases.says("not allowed", [](Job& job) { job[0].node.allowed_memory_nodes = {1}; });
    cases.check("C6", warning, small_job);
    cases.says("0.5 CPUs of time to 1 thread",
               [](Job& job) { job[0].node.control_group.cpu_quota = 0.5; });
    cases.says("stopped this job 9 time(s)", [](Job& job) { job[0].system.throttled_moved = 9; });
    cases.check("C7", warning, small_job);
    cases.says("powersave", slow_down_clock);
    cases.check("C7", warning, gpu_job);
    cases.says("hardware threads of the same cores", split_a_core);
    cases.check("C7", info, small_job);
    cases.says("0.8 of 3.0 GHz", [](Job& job) {
        job[0].system.frequency_khz = 800000;
        job[0].system.max_frequency_khz = 3000000;
    });
    cases.check("C8", warning, unbound_job);
    cases.says("other processes keep 0.5 of 2 (cores 0-1) busy; ranks 0-1 had a core for 75 %",
               load(0.75, 2));
    cases.says("other processes keep 2.0 of 2 (cores 0-1) busy; ranks 0-1 had a core for 0 %",
               load(0, 2));
    cases.check("C8", warning, small_job);
    cases.says("rank 1 had a core for 33 % of the time", [](Job& job) {
        job[1].load = {.watched_s = 0.3, .computed_s = 0.1, .busy_s = 0.1};
    });
    cases.says("ask the staff of the cloud", [](Job& job) {
        job[1].load = {.watched_s = 1, .computed_s = 0.6, .busy_s = 1, .stolen_s = 0.4};
    });
    cases.check("C8", info, laptop);
    cases.says("other processes keep 3.0 of 16", load(1, 4));
    return cases.all();
}

std::vector<Sick> limit_and_self_test_cases() {
    using enum Severity;
    SickJobs cases;
    cases.check("L1", warning, small_job);
    cases.says("only 64 MiB free", [](Job& job) { job[0].shared_memory.free_bytes = 64u << 20; });
    cases.check("L1", error, small_job);
    cases.says("this run needs 12 GiB", need_shared_memory(12));
    cases.says("mount -o remount,size=20g", need_shared_memory(12));
    cases.says("/dev/shm is memory, and this node has 23", need_shared_memory(100));
    cases.check("L1", warning, small_job);
    cases.says("mount -o remount,size=1g", [](Job& job) {
        job[0].shared_memory.free_bytes = job[0].shared_memory.total_bytes = 64u << 20;
    });
    cases.says("vader_segment.x",
               [](Job& job) { job[0].system.stale_shared_files = {"vader_segment.x"}; });
    cases.check("L2", warning, small_job);
    cases.says("RemoveIPC=yes", [](Job& job) { job[0].system.removes_ipc = true; });
    cases.check("L3", warning, cpu_job);
    cases.says("1024 open files are allowed, 4352 may be needed",
               [](Job& job) { job[0].node.limits.open_files = 1024; });
    cases.check("L4", warning, small_job);
    cases.says("NCCL is 2.27.5", [](Job& job) {
        job[0].node.limits.stack_bytes.reset();
        job[0].program.nccl_version = "2.27.5";
    });
    cases.check("L5", info, small_job);
    cases.says("ptrace_scope is 2", [](Job& job) { job[0].node.kernel.ptrace_scope = 2; });
    cases.check("L6", warning, small_job);
    cases.says("does not exist", [](Job& job) { job[0].temporary_folder.exists = false; });
    cases.says("80 characters",
               [](Job& job) { job[0].temporary_folder.path = "/" + std::string(79, 't'); });
    cases.says("on nfs", [](Job& job) { job[0].temporary_folder.file_system = "nfs"; });
    cases.check("L7", error, run_job);
    cases.says("inode 42 of nfs on rank 2, inode 43 of ext4 on rank 0", [](Job& job) {
        job[0].run_folder.inode = 43;
        job[0].run_folder.file_system = "ext4";
    });
    cases.says("'runs/a' is there for rank 0 (cpu0), and not for rank 2 (cpu1)",
               [](Job& job) { job[2].run_folder.exists = job[3].run_folder.exists = false; });
    cases.says("cannot be made", [](Job& job) {
        for (DoctorFacts& facts : job) facts.run_folder = {.path = "/proc/x"};
    });
    cases.says("is a file, or lies below one", [](Job& job) { job[0].run_folder.is_file = true; });
    cases.says("cannot be written to", [](Job& job) { job[0].run_folder.is_writable = false; });
    cases.says("or move the run's folder (mv): lockstep train --resume NEW", [](Job& job) {
        job[0].run_folder.is_writable = false;
        job[0].run_folder.holds_run = true;
    });
    cases.says("'runs/a' would be made on one node alone", [](Job& job) {
        for (DoctorFacts& facts : job) {
            facts.run_folder.exists = false;
            facts.run_folder.file_system = "xfs";
        }
        job[0].run_folder.inode = 43;
    });
    cases.check("L7", warning, run_job);
    cases.says("is in memory (tmpfs)", [](Job& job) {
        for (DoctorFacts& facts : job) facts.run_folder.file_system = "tmpfs";
    });
    cases.says("9 inodes left", [](Job& job) { job[0].run_folder.free_inodes = 9; });
    cases.says("1 MiB left", [](Job& job) { job[0].run_folder.free_bytes = 1u << 20; });
    cases.check("L8", error, small_job);
    cases.says("the control group has 23 GiB",
               [](Job& job) { job[0].plan.memory_bytes = std::uint64_t{40} << 30; });
    cases.check("L8", warning, small_job);
    cases.says("overcommit_memory is 2", [](Job& job) { job[0].system.overcommit = 2; });
    cases.check("L9", warning, run_job);
    cases.says("the run may take",
               [](Job& job) { job[0].environment["SLURM_JOB_END_TIME"] = "2000"; });
    cases.says("only", [](Job& job) {
        job[0].environment["SLURM_JOB_END_TIME"] = "1060";
        job[0].plan.duration_s = 0;
    });
    cases.check("T1", error, small_job);
    cases.says("3 of 1,023 sums of lockstep are wrong",
               [](Job& job) { job[1].self_test->wrong_sums[0].wrong = 3; });
    cases.check("T2", warning, three_nodes);
    cases.says("between ranks 0 and 2: 953.7 MiB/s", [](Job& job) {
        job[0].self_test->slow_pairs = {{2, 1e9}};
        job[2].self_test->slow_pairs = {{0, 9e8}};
    });
    cases.check("T2", warning, cpu_job);
    cases.says("between ranks 0 and 2: 2.3 MiB/s, where eno1 runs at 10 Gbit/s",
               link_of(2.4e6, 10000));
    cases.says("476.8 MiB/s, where eno1 runs at 25 Gbit/s", link_of(5e8, 25000));
    cases.says("85.8 MiB/s, less than Gigabit Ethernet gives", link_of(9e7, 0));
    cases.says("100 MiB of gradients take 43.7s", link_of(2.4e6, 0));
    cases.check("T2", warning, three_nodes);
    cases.says("where eno1 runs at 10 Gbit/s; and 1 more such link(s)", [](Job& job) {
        for (DoctorFacts& facts : job) facts.self_test->median_link = 2.4e6;
        job[0].self_test->slow_pairs = {{1, 2.5e6}, {2, 2.4e6}};
        job[1].self_test->slow_pairs = {{0, 2.5e6}};
        job[2].self_test->slow_pairs = {{0, 2.4e6}};
    });
    cases.check("T3", warning, small_job);
    cases.says("9 % of its speed", [](Job& job) { job[0].self_test->measured_s = 0.100; });
    cases.check("T4", error, small_job);
    cases.says("abc on rank 0, abd on rank 1",
               [](Job& job) { job[1].self_test->state_hash = "abd"; });
    cases.says("2 number(s) are not finite", [](Job& job) { job[1].self_test->not_finite = 2; });
    cases.check("T5", warning, cpu_job);
    cases.says("1.50 times as long", [](Job& job) { job[1].self_test->step_s.assign(24, 0.003); });
    return cases.all();
}

}  // namespace lockstep::test
