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
    return job_of(node_of("two-socket"), 3, 1);
}

}  // namespace

std::vector<Sick> limit_and_self_test_cases() {
    using enum Severity;
    const auto first = [](auto change) { return [change](Job& job) { change(job[0]); }; };
    const auto test = [](auto change) { return [change](Job& job) { change(*job[1].self_test); }; };
    SickJobs cases;
    cases.check("L1", warning, small_job).says("only 64 MiB free", first([](DoctorFacts& facts) {
                                                   facts.shared_memory.free_bytes = 64u << 20;
                                               }));
    cases.check("L1", error, small_job)
        .says("this run needs 12 GiB", need_shared_memory(12))
        .says("mount -o remount,size=20g", need_shared_memory(12))
        .says("/dev/shm is memory, and this node has 23", need_shared_memory(100));
    cases.check("L1", warning, small_job)
        .says("mount -o remount,size=1g", first([](DoctorFacts& facts) {
                  facts.shared_memory.free_bytes = facts.shared_memory.total_bytes = 64u << 20;
              }))
        .says("vader_segment.x", first([](DoctorFacts& facts) {
                  facts.system.stale_shared_files = {"vader_segment.x"};
              }));
    cases.check("L2", warning, small_job).says("RemoveIPC=yes", first([](DoctorFacts& facts) {
                                                   facts.system.removes_ipc = true;
                                               }));
    cases.check("L3", warning, cpu_job)
        .says("1024 open files are allowed, 4352 may be needed",
              first([](DoctorFacts& facts) { facts.node.limits.open_files = 1024; }));
    cases.check("L4", warning, small_job).says("NCCL is 2.27.5", first([](DoctorFacts& facts) {
                                                   facts.node.limits.stack_bytes.reset();
                                                   facts.program.nccl_version = "2.27.5";
                                               }));
    cases.check("L5", info, small_job).says("ptrace_scope is 2", first([](DoctorFacts& facts) {
                                                facts.node.kernel.ptrace_scope = 2;
                                            }));
    cases.check("L6", warning, small_job)
        .says("does not exist",
              first([](DoctorFacts& facts) { facts.temporary_folder.exists = false; }))
        .says("80 characters", first([](DoctorFacts& facts) {
                  facts.temporary_folder.path = "/" + std::string(79, 't');
              }))
        .says("on nfs",
              first([](DoctorFacts& facts) { facts.temporary_folder.file_system = "nfs"; }));
    cases.check("L7", error, run_job)
        .says("inode 42 of nfs on rank 2, inode 43 of ext4 on rank 0",
              first([](DoctorFacts& facts) {
                  facts.run_folder.inode = 43;
                  facts.run_folder.file_system = "ext4";
              }))
        .says("'runs/a' is there for rank 0 (cpu0), and not for rank 2 (cpu1)",
              [](Job& job) { job[2].run_folder.exists = job[3].run_folder.exists = false; })
        .says("cannot be made",
              [](Job& job) {
                  for (DoctorFacts& facts : job) facts.run_folder = {.path = "/proc/x"};
              })
        .says("is a file, or lies below one",
              first([](DoctorFacts& facts) { facts.run_folder.is_file = true; }))
        .says("cannot be written to",
              first([](DoctorFacts& facts) { facts.run_folder.is_writable = false; }));
    cases.check("L7", warning, run_job)
        .says("9 inodes left", first([](DoctorFacts& facts) { facts.run_folder.free_inodes = 9; }))
        .says("1 MiB left",
              first([](DoctorFacts& facts) { facts.run_folder.free_bytes = 1u << 20; }));
    cases.check("L8", error, small_job)
        .says("the control group has 23 GiB",
              first([](DoctorFacts& facts) { facts.plan.memory_bytes = std::uint64_t{40} << 30; }));
    cases.check("L8", warning, small_job)
        .says("overcommit_memory is 2",
              first([](DoctorFacts& facts) { facts.system.overcommit = 2; }));
    cases.check("L9", warning, run_job)
        .says("the run may take",
              first([](DoctorFacts& facts) { facts.environment["SLURM_JOB_END_TIME"] = "2000"; }))
        .says("only", first([](DoctorFacts& facts) {
                  facts.environment["SLURM_JOB_END_TIME"] = "1060";
                  facts.plan.duration_s = 0;
              }));
    cases.check("T1", error, small_job)
        .says("3 of 1,023 sums of lockstep are wrong",
              test([](SelfTestFacts& facts) { facts.wrong_sums[0].wrong = 3; }));
    cases.check("T2", warning, three_nodes)
        .says("between ranks 0 and 2: 953.7 MiB/s", [](Job& job) {
            job[0].self_test->slow_pairs = {{2, 1e9}};
            job[2].self_test->slow_pairs = {{0, 9e8}};
        });
    cases.check("T2", warning, cpu_job)
        .says("between ranks 0 and 2: 2.3 MiB/s, where eno1 runs at 10 Gbit/s",
              link_of(2.4e6, 10000))
        .says("476.8 MiB/s, where eno1 runs at 25 Gbit/s", link_of(5e8, 25000))
        .says("85.8 MiB/s, less than Gigabit Ethernet gives", link_of(9e7, 0))
        .says("100 MiB of gradients take 43.7s", link_of(2.4e6, 0));
    cases.check("T2", warning, three_nodes)
        .says("where eno1 runs at 10 Gbit/s; and 1 more such link(s)", [](Job& job) {
            for (DoctorFacts& facts : job) facts.self_test->median_link = 2.4e6;
            job[0].self_test->slow_pairs = {{1, 2.5e6}, {2, 2.4e6}};
            job[1].self_test->slow_pairs = {{0, 2.5e6}};
            job[2].self_test->slow_pairs = {{0, 2.4e6}};
        });
    cases.check("T3", warning, small_job).says("9 % of its speed", first([](DoctorFacts& facts) {
                                                   facts.self_test->measured_s = 0.100;
                                               }));
    cases.check("T4", error, small_job)
        .says("abc on rank 0, abd on rank 1",
              test([](SelfTestFacts& facts) { facts.state_hash = "abd"; }))
        .says("2 number(s) are not finite",
              test([](SelfTestFacts& facts) { facts.not_finite = 2; }));
    cases.check("T5", warning, cpu_job).says("1.50 times as long", test([](SelfTestFacts& facts) {
                                                 facts.step_s.assign(24, 0.003);
                                             }));
    return cases.all();
}

}  // namespace lockstep::test
