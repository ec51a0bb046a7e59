// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor_facts.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/known_faults.hpp"
#include "lockstep/core/version.hpp"

#include "doctor/read_facts.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include <dlfcn.h>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_messages = 20;

/// The variables that checks read, and no more: the environment may hold secrets.
constexpr std::array variables{"CUDA_VISIBLE_DEVICES",
                               "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE",
                               "LOCKSTEP_BOUND",
                               "OMPI_COMM_WORLD_LOCAL_RANK",
                               "OMPI_COMM_WORLD_LOCAL_SIZE",
                               "OMPI_COMM_WORLD_RANK",
                               "OMPI_COMM_WORLD_SIZE",
                               "OMPI_MCA_btl_tcp_if_exclude",
                               "OMPI_MCA_btl_tcp_if_include",
                               "OMPI_MCA_oob_tcp_if_exclude",
                               "OMPI_MCA_oob_tcp_if_include",
                               "OMP_NUM_THREADS",
                               "OMP_PLACES",
                               "OMP_PROC_BIND",
                               "PMIX_RANK",
                               "PMI_RANK",
                               "PMI_SIZE",
                               "PRTE_MCA_prte_if_exclude",
                               "PRTE_MCA_prte_if_include",
                               "RANK",
                               "SLURM_CPUS_PER_TASK",
                               "SLURM_HET_SIZE",
                               "SLURM_JOB_END_TIME",
                               "SLURM_JOB_ID",
                               "SLURM_LOCALID",
                               "SLURM_NODEID",
                               "SLURM_NTASKS",
                               "SLURM_PROCID",
                               "SLURM_RESTART_COUNT",
                               "SLURM_STEP_GPUS",
                               "SLURM_STEP_ID",
                               "SLURM_STEP_NUM_TASKS",
                               "SLURM_STEP_TASKS_PER_NODE",
                               "SLURM_TASKS_PER_NODE",
                               "SRUN_CPUS_PER_TASK",
                               "TORCHELASTIC_RUN_ID",
                               "WORLD_SIZE"};

std::map<std::string, std::string> extract_of(const Environment& environment) {
    std::map<std::string, std::string> extract;
    std::vector<std::string> names = environment.names_with_prefix("NCCL_");
    names.insert(names.end(), variables.begin(), variables.end());
    for (const std::string& name : names)
        if (const auto value = environment.text(name)) extract[name] = *value;
    return extract;
}

/// Files mapped into this process whose name begins so, each once.
std::vector<std::string> mapped_files(const fs::path& root, std::string_view name) {
    std::istringstream lines(text_of(root / "proc/self/maps"));
    std::vector<std::string> files;
    for (std::string line; std::getline(lines, line);) {
        const auto begin = line.find('/');
        if (begin == line.npos) continue;
        const std::string file = line.substr(begin);
        const bool fits = fs::path(file).filename().string().starts_with(name);
        if (fits && std::ranges::count(files, file) == 0) files.push_back(file);
    }
    return files;
}

/// "2.28.9" of "libnccl.so.2.28.9"; "2" where the file's name says no more.
std::string version_in_name(const std::vector<std::string>& files) {
    if (files.empty()) return "";
    const auto begin = files.front().rfind(".so.");
    return begin == std::string::npos ? "" : files.front().substr(begin + 4);
}

/// libcuda tells its version without being started: nothing is decided yet about devices.
void ask_cuda_driver(ProgramFacts& program) {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        program.cuda_fault = "libcuda.so.1 cannot be loaded";
        return;
    }
    using VersionFunction = int (*)(int*);
    const auto version_of =
        reinterpret_cast<VersionFunction>(::dlsym(library, "cuDriverGetVersion"));
    int version = 0;
    if (version_of != nullptr && version_of(&version) == 0) program.cuda_driver = version;
}

/// One process of a job of SLURM asks, without its controller.
int slurm_version(const FactSource& source) {
    const auto rank = source.environment.text("SLURM_PROCID").value_or("0");
    const bool is_asked =
        source.root == "/" && rank == "0" && source.environment.text("SLURM_JOB_ID");
    return is_asked ? installed_slurm_version() : 0;
}

ProgramFacts program_facts(const FactSource& source) {
    ProgramFacts program;
    program.version = version_text();
    program.mpi_libraries = mapped_files(source.root, "libmpi.so");
    program.nccl_version = version_in_name(mapped_files(source.root, "libnccl.so"));
    program.pmix_version = loaded_pmix_version();
    program.slurm_version = slurm_version(source);
    program.ancestors = ancestors_of_this(source.root);
    if (source.plan.uses_gpus && source.root == "/") ask_cuda_driver(program);
    return program;
}

}  // namespace

DoctorFacts read_doctor_facts(const FactSource& source, const NodeTopology& node) {
    DoctorFacts facts;
    facts.plan = source.plan;
    facts.environment = extract_of(source.environment);
    facts.program = program_facts(source);
    facts.node = node;
    facts.system = read_system_facts(source, node);
    facts.shared_memory = folder_facts(source.root, "/dev/shm");
    facts.temporary_folder =
        folder_facts(source.root, source.environment.text("TMPDIR").value_or("/tmp"));
    if (!source.plan.run_folder.empty())
        facts.run_folder = folder_facts(source.root, source.plan.run_folder);
    facts.now_s = unix_time_s();
    return facts;
}

std::vector<std::string> pmix_errors_in(std::string_view text) {
    constexpr std::array signs{
        "PMIX ERROR", "gds_ds12", "gds_ds21", "psec", "PMIX_ERR", "pmix_server_init"};
    std::istringstream lines{std::string(text)};
    std::vector<std::string> errors;
    for (std::string line; std::getline(lines, line) && errors.size() < most_messages;) {
        const bool is_sign = std::ranges::any_of(
            signs, [&](const char* sign) { return line.find(sign) != line.npos; });
        if (is_sign && std::ranges::count(errors, line) == 0) errors.push_back(line);
    }
    return errors;
}

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
