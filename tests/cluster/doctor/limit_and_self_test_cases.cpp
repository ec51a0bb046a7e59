// SPDX-License-Identifier: Apache-2.0
#include "cluster/doctor/patients.hpp"

namespace lockstep::test {
namespace {

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
    return job_of(fixture("two-socket"), 3, 1);
}

}  // namespace

std::vector<Sick> limit_and_self_test_cases() {
    using enum Severity;
    const auto first = [](auto change) { return [change](Job& job) { change(job[0]); }; };
    const auto test = [](auto change) { return [change](Job& job) { change(*job[1].self_test); }; };
    return {
        {"L1", warning, "only 64 MiB free", small_job, first([](DoctorFacts& facts) {
             facts.shared_memory.free_bytes = 64u << 20;
         })},
        {"L1", error, "this run needs 12 GiB", small_job, need_shared_memory(12)},
        {"L1", error, "mount -o remount,size=20g", small_job, need_shared_memory(12)},
        {"L1",
         error,
         "/dev/shm is memory, and this node has 23",
         small_job,
         need_shared_memory(100)},
        {"L1", warning, "mount -o remount,size=1g", small_job, first([](DoctorFacts& facts) {
             facts.shared_memory.free_bytes = facts.shared_memory.total_bytes = 64u << 20;
         })},
        {"L1", warning, "vader_segment.x", small_job, first([](DoctorFacts& facts) {
             facts.system.stale_shared_files = {"vader_segment.x"};
         })},
        {"L2", warning, "RemoveIPC=yes", small_job, first([](DoctorFacts& facts) {
             facts.system.removes_ipc = true;
         })},
        {"L3",
         warning,
         "1024 open files are allowed, 4352 may be needed",
         cpu_job,
         first([](DoctorFacts& facts) { facts.node.limits.open_files = 1024; })},
        {"L4", warning, "NCCL is 2.27.5", small_job, first([](DoctorFacts& facts) {
             facts.node.limits.stack_bytes.reset();
             facts.program.nccl_version = "2.27.5";
         })},
        {"L5", info, "ptrace_scope is 2", small_job, first([](DoctorFacts& facts) {
             facts.node.kernel.ptrace_scope = 2;
         })},
        {"L6", warning, "does not exist", small_job, first([](DoctorFacts& facts) {
             facts.temporary_folder.exists = false;
         })},
        {"L6", warning, "80 characters", small_job, first([](DoctorFacts& facts) {
             facts.temporary_folder.path = "/" + std::string(79, 't');
         })},
        {"L6", warning, "on nfs", small_job, first([](DoctorFacts& facts) {
             facts.temporary_folder.file_system = "nfs";
         })},
        {"L7",
         error,
         "inode 42 of nfs on rank 2, inode 43 of ext4 on rank 0",
         run_job,
         first([](DoctorFacts& facts) {
             facts.run_folder.inode = 43;
             facts.run_folder.file_system = "ext4";
         })},
        {"L7",
         error,
         "'runs/a' is there for rank 0 (cpu0), and not for rank 2 (cpu1)",
         run_job,
         [](Job& job) { job[2].run_folder.exists = job[3].run_folder.exists = false; }},
        {"L7",
         error,
         "cannot be made",
         run_job,
         [](Job& job) {
             for (DoctorFacts& facts : job) facts.run_folder = {.path = "/proc/x"};
         }},
        {"L7", error, "is a file, or lies below one", run_job, first([](DoctorFacts& facts) {
             facts.run_folder.is_file = true;
         })},
        {"L7", error, "cannot be written to", run_job, first([](DoctorFacts& facts) {
             facts.run_folder.is_writable = false;
         })},
        {"L7", warning, "9 inodes left", run_job, first([](DoctorFacts& facts) {
             facts.run_folder.free_inodes = 9;
         })},
        {"L7", warning, "1 MiB left", run_job, first([](DoctorFacts& facts) {
             facts.run_folder.free_bytes = 1u << 20;
         })},
        {"L8", error, "the control group has 23 GiB", small_job, first([](DoctorFacts& facts) {
             facts.plan.memory_bytes = std::uint64_t{40} << 30;
         })},
        {"L8", warning, "overcommit_memory is 2", small_job, first([](DoctorFacts& facts) {
             facts.system.overcommit = 2;
         })},
        {"L9", warning, "the run may take", run_job, first([](DoctorFacts& facts) {
             facts.environment["SLURM_JOB_END_TIME"] = "2000";
         })},
        {"L9", warning, "only", run_job, first([](DoctorFacts& facts) {
             facts.environment["SLURM_JOB_END_TIME"] = "1060";
             facts.plan.duration_s = 0;
         })},
        {"T1",
         error,
         "3 of 1,023 sums of lockstep are wrong",
         small_job,
         test([](SelfTestFacts& facts) { facts.wrong_sums[0].wrong = 3; })},
        {"T2",
         warning,
         "between ranks 0 and 2: 953.7 MiB/s",
         three_nodes,
         [](Job& job) {
             job[0].self_test->slow_pairs = {{2, 1e9}};
             job[2].self_test->slow_pairs = {{0, 9e8}};
         }},
        {"T2",
         warning,
         "between ranks 0 and 2: 2.3 MiB/s, where eno1 runs at 10 Gbit/s",
         cpu_job,
         link_of(2.4e6, 10000)},
        {"T2", warning, "476.8 MiB/s, where eno1 runs at 25 Gbit/s", cpu_job, link_of(5e8, 25000)},
        {"T2", warning, "85.8 MiB/s, less than Gigabit Ethernet gives", cpu_job, link_of(9e7, 0)},
        {"T2", warning, "100 MiB of gradients take 43.7s", cpu_job, link_of(2.4e6, 0)},
        {"T2",
         warning,
         "where eno1 runs at 10 Gbit/s; and 1 more such link(s)",
         three_nodes,
         [](Job& job) {
             for (DoctorFacts& facts : job) facts.self_test->median_link = 2.4e6;
             job[0].self_test->slow_pairs = {{1, 2.5e6}, {2, 2.4e6}};
             job[1].self_test->slow_pairs = {{0, 2.5e6}};
             job[2].self_test->slow_pairs = {{0, 2.4e6}};
         }},
        {"T3", warning, "9 % of its speed", small_job, first([](DoctorFacts& facts) {
             facts.self_test->measured_s = 0.100;
         })},
        {"T4", error, "abc on rank 0, abd on rank 1", small_job, test([](SelfTestFacts& facts) {
             facts.state_hash = "abd";
         })},
        {"T4", error, "2 number(s) are not finite", small_job, test([](SelfTestFacts& facts) {
             facts.not_finite = 2;
         })},
        {"T5", warning, "1.50 times as long", cpu_job, test([](SelfTestFacts& facts) {
             facts.step_s.assign(24, 0.003);
         })},
    };
}

}  // namespace lockstep::test
