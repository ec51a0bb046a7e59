// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor_facts.hpp"

namespace lockstep {

void describe(Record& record, DoctorPlan& plan) {
    record.sparse("threads", plan.threads, 1);
    record.sparse("uses_gpus", plan.uses_gpus);
    record.sparse("expects_rdma", plan.expects_rdma);
    record.sparse("shared_bytes", plan.shared_bytes);
    record.sparse("memory_bytes", plan.memory_bytes);
    record.sparse("duration_s", plan.duration_s);
    record.sparse("run_folder", plan.run_folder);
}

void describe(Record& record, MissingPart& part) {
    record.field("what", part.what);
    record.field("why", part.why);
    record.field("fix", part.fix);
}

void describe(Record& record, ProgramFacts& program) {
    record.sparse("version", program.version);
    record.sparse("mpi_version", program.mpi_version);
    record.sparse("thread_level", program.thread_level, 3);
    record.sparse("mpi_libraries", program.mpi_libraries);
    record.sparse("ancestors", program.ancestors);
    record.sparse("nccl_version", program.nccl_version);
    record.sparse("pmix_version", program.pmix_version);
    record.sparse("slurm_version", program.slurm_version);
    record.sparse("cuda_driver", program.cuda_driver);
    record.sparse("cuda_runtime", program.cuda_runtime);
    record.sparse("cuda_fault", program.cuda_fault);
    record.sparse("missing_for_gpus", program.missing_for_gpus);
    record.sparse("launcher_messages", program.launcher_messages);
}

void describe(Record& record, FolderFacts& folder) {
    record.sparse("path", folder.path);
    record.sparse("exists", folder.exists);
    record.sparse("is_file", folder.is_file);
    record.sparse("is_writable", folder.is_writable);
    record.sparse("file_system", folder.file_system);
    record.sparse("inode", folder.inode);
    record.sparse("free_bytes", folder.free_bytes);
    record.sparse("total_bytes", folder.total_bytes);
    record.sparse("free_inodes", folder.free_inodes);
}

void describe(Record& record, SystemFacts& system) {
    record.sparse("frequency_khz", system.frequency_khz);
    record.sparse("max_frequency_khz", system.max_frequency_khz);
    record.sparse("frequency_driver", system.frequency_driver);
    record.sparse("throttled_moved", system.throttled_moved);
    record.sparse("stale_shared_files", system.stale_shared_files);
    record.sparse("removes_ipc", system.removes_ipc);
    record.sparse("overcommit", system.overcommit);
    record.sparse("host_addresses", system.host_addresses);
    record.sparse("nccl_files", system.nccl_files);
    record.sparse("redirects_pci", system.redirects_pci);
    record.sparse("port_errors", system.port_errors);
    record.sparse("errors_moved", system.errors_moved);
    record.sparse("ras_port_owner", system.ras_port_owner);
    record.sparse("user", system.user);
}

void describe(Record& record, UnreachedAddress& unreached) {
    record.sparse("host", unreached.host);
    record.sparse("address", unreached.address);
    record.sparse("reason", unreached.reason);
}

void describe(Record& record, NetworkProbe& probe) {
    record.sparse("clock_offset_s", probe.clock_offset_s);
    record.sparse("tried", probe.tried);
    record.sparse("unreached", probe.unreached);
    record.sparse("reached", probe.reached);
    record.sparse("working", probe.working);
}

void describe(Record& record, WrongSum& sum) {
    record.sparse("type", sum.type);
    record.sparse("count", sum.count);
    record.sparse("wrong", sum.wrong);
}

void describe(Record& record, PairSpeed& pair) {
    record.sparse("to_rank", pair.to_rank);
    record.sparse("bytes_per_s", pair.bytes_per_s);
}

void describe(Record& record, LoadFacts& load) {
    record.sparse("watched_s", load.watched_s);
    record.sparse("computed_s", load.computed_s);
    record.sparse("busy_s", load.busy_s);
    record.sparse("stolen_s", load.stolen_s);
}

void describe(Record& record, SelfTestFacts& test) {
    record.sparse("wrong_sums", test.wrong_sums);
    record.sparse("median_link", test.median_link);
    record.sparse("slow_pairs", test.slow_pairs);
    record.sparse("measured_s", test.measured_s);
    record.sparse("memory_s", test.memory_s);
    record.sparse("reduced_bytes", test.reduced_bytes);
    record.sparse("state_hash", test.state_hash);
    record.sparse("not_finite", test.not_finite);
    record.sparse("step_s", test.step_s);
}

void describe(Record& record, DoctorFacts& facts) {
    record.sparse("rank", facts.rank);
    record.sparse("size", facts.size, 1);
    record.sparse("local_rank", facts.local_rank);
    record.sparse("local_size", facts.local_size, 1);
    record.sparse("plan", facts.plan);
    record.sparse("environment", facts.environment);
    record.sparse("program", facts.program);
    record.sparse("node", facts.node);
    record.sparse("system", facts.system);
    record.sparse("shared_memory", facts.shared_memory);
    record.sparse("temporary_folder", facts.temporary_folder);
    record.sparse("run_folder", facts.run_folder);
    record.sparse("network", facts.network);
    record.sparse("load", facts.load);
    record.sparse("self_test", facts.self_test);
    record.sparse("gpu", facts.gpu);
    record.sparse("now_s", facts.now_s);
}

}  // namespace lockstep
