// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor_facts.hpp"

#include "facts_json.hpp"
#include "topology/topology_fields.hpp"

namespace lockstep {

template <class Visitor, FactsOf<DoctorPlan> Facts>
void walk(Visitor& visit, Facts& plan) {
    visit("threads", plan.threads, 1);
    visit("uses_gpus", plan.uses_gpus);
    visit("expects_rdma", plan.expects_rdma);
    visit("shared_bytes", plan.shared_bytes);
    visit("memory_bytes", plan.memory_bytes);
    visit("duration_s", plan.duration_s);
    visit("run_folder", plan.run_folder);
}

template <class Visitor, FactsOf<ProgramFacts> Facts>
void walk(Visitor& visit, Facts& program) {
    visit("version", program.version);
    visit("mpi_version", program.mpi_version);
    visit("thread_level", program.thread_level, 3);
    visit("mpi_libraries", program.mpi_libraries);
    visit("ancestors", program.ancestors);
    visit("nccl_version", program.nccl_version);
    visit("cuda_driver", program.cuda_driver);
    visit("cuda_runtime", program.cuda_runtime);
    visit("cuda_fault", program.cuda_fault);
    visit("launcher_messages", program.launcher_messages);
}

template <class Visitor, FactsOf<FolderFacts> Facts>
void walk(Visitor& visit, Facts& folder) {
    visit("path", folder.path);
    visit("exists", folder.exists);
    visit("is_writable", folder.is_writable);
    visit("file_system", folder.file_system);
    visit("inode", folder.inode);
    visit("free_bytes", folder.free_bytes);
    visit("total_bytes", folder.total_bytes);
    visit("free_inodes", folder.free_inodes);
}

template <class Visitor, FactsOf<SystemFacts> Facts>
void walk(Visitor& visit, Facts& system) {
    visit("frequency_khz", system.frequency_khz);
    visit("max_frequency_khz", system.max_frequency_khz);
    visit("frequency_driver", system.frequency_driver);
    visit("throttled_moved", system.throttled_moved);
    visit("stale_shared_files", system.stale_shared_files);
    visit("removes_ipc", system.removes_ipc);
    visit("overcommit", system.overcommit);
    visit("host_addresses", system.host_addresses);
    visit("nccl_files", system.nccl_files);
    visit("redirects_pci", system.redirects_pci);
    visit("port_errors", system.port_errors);
    visit("errors_moved", system.errors_moved);
    visit("ras_port_owner", system.ras_port_owner);
    visit("user", system.user);
}

template <class Visitor, FactsOf<UnreachedAddress> Facts>
void walk(Visitor& visit, Facts& unreached) {
    visit("host", unreached.host);
    visit("address", unreached.address);
    visit("reason", unreached.reason);
}

template <class Visitor, FactsOf<NetworkProbe> Facts>
void walk(Visitor& visit, Facts& probe) {
    visit("clock_offset_s", probe.clock_offset_s);
    visit("tried", probe.tried);
    visit("unreached", probe.unreached);
    visit("reached", probe.reached);
}

template <class Visitor, FactsOf<WrongSum> Facts>
void walk(Visitor& visit, Facts& sum) {
    visit("type", sum.type);
    visit("count", sum.count);
    visit("wrong", sum.wrong);
}

template <class Visitor, FactsOf<PairSpeed> Facts>
void walk(Visitor& visit, Facts& pair) {
    visit("to_rank", pair.to_rank);
    visit("bytes_per_s", pair.bytes_per_s);
}

template <class Visitor, FactsOf<SelfTestFacts> Facts>
void walk(Visitor& visit, Facts& test) {
    visit("wrong_sums", test.wrong_sums);
    visit("pairs", test.pairs);
    visit("measured_s", test.measured_s);
    visit("predicted_s", test.predicted_s);
    visit("reduced_bytes", test.reduced_bytes);
    visit("state_hash", test.state_hash);
    visit("not_finite", test.not_finite);
    visit("step_s", test.step_s);
}

template <class Visitor, FactsOf<DoctorFacts> Facts>
void walk(Visitor& visit, Facts& facts) {
    visit("rank", facts.rank);
    visit("size", facts.size, 1);
    visit("local_rank", facts.local_rank);
    visit("local_size", facts.local_size, 1);
    visit("plan", facts.plan);
    visit("environment", facts.environment);
    visit("program", facts.program);
    visit("node", facts.node);
    visit("system", facts.system);
    visit("shared_memory", facts.shared_memory);
    visit("temporary_folder", facts.temporary_folder);
    visit("run_folder", facts.run_folder);
    visit("network", facts.network);
    visit("self_test", facts.self_test);
    visit("gpu", facts.gpu);
    visit("now_s", facts.now_s);
}

std::string serialize(const DoctorFacts& facts) {
    return text_of_facts(facts);
}

DoctorFacts deserialize_doctor_facts(std::string_view text, const std::string& origin) {
    return facts_of_text<DoctorFacts>(text, origin);
}

}  // namespace lockstep
