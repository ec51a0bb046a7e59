// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/known_faults.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/core/version.hpp"

#include "topology/topology_readers.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <sstream>

#include <dlfcn.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
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
    std::vector<std::string> files;
    for (const std::string& line : split(text_of(root / "proc/self/maps"), '\n')) {
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

std::optional<std::uint64_t> number_in(const fs::path& file) {
    const auto number = parse_integer(text_of(file));
    if (!number || *number < 0) return {};
    return static_cast<std::uint64_t>(*number);
}

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream in(line.substr(0, line.find('#')));
    return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::string> addresses_in_hosts(const fs::path& root, const std::string& host) {
    std::vector<std::string> addresses;
    for (const std::string& line : split(text_of(root / "etc/hosts"), '\n')) {
        const auto words = words_of(line);
        if (words.size() > 1 && std::count(words.begin() + 1, words.end(), host) > 0)
            addresses.push_back(words[0]);
    }
    return addresses;
}

bool says_remove_ipc(const fs::path& file) {
    bool removes = false;
    for (const std::string& line : split(text_of(file), '\n'))
        if (line.starts_with("RemoveIPC=")) removes = line == "RemoveIPC=yes";
    return removes;
}

bool removes_ipc(const fs::path& root) {
    bool removes = says_remove_ipc(root / "etc/systemd/logind.conf");
    for (const fs::path& file : entries_of(root / "etc/systemd/logind.conf.d"))
        removes = says_remove_ipc(file) || removes;
    return removes;
}

/// The user id that listens on port 28028, from /proc/net/tcp's columns.
std::optional<std::uint64_t> ras_port_owner(const fs::path& root) {
    constexpr const char *port = ":6D7C", *listening = "0A";
    for (const std::string& line : split(text_of(root / "proc/net/tcp"), '\n')) {
        const auto words = words_of(line);
        if (words.size() < 8 || !words[1].ends_with(port) || words[3] != listening) continue;
        if (const auto user = parse_integer(words[7])) return static_cast<std::uint64_t>(*user);
    }
    return {};
}

std::vector<std::string> nccl_files(const FactSource& source) {
    std::vector<std::string> files;
    const std::string home = source.environment.text("HOME").value_or("");
    for (const std::string& file : {home + "/.nccl.conf", std::string("/etc/nccl.conf")})
        if (fs::exists(source.root / fs::path(file).relative_path())) files.push_back(file);
    return files;
}

void read_frequency(const fs::path& root, const NodeTopology& node, SystemFacts& system) {
    if (node.allowed_cpus.empty()) return;
    const auto folder = root / "sys/devices/system/cpu" /
                        fmt::format("cpu{}", node.allowed_cpus.front()) / "cpufreq";
    system.frequency_khz = number_in(folder / "scaling_cur_freq");
    system.max_frequency_khz = number_in(folder / "cpuinfo_max_freq");
    system.frequency_driver = text_of(folder / "scaling_driver");
}

/// "mpirun" and 17 of a stat line "42 (mpirun) S 17 ...": the name may hold spaces and brackets.
struct ProcessLine {
    std::string name;
    std::int64_t parent = 0;
};

ProcessLine process_line(const fs::path& process) {
    const std::string text = text_of(process / "stat");
    const auto open = text.find('('), close = text.rfind(')');
    if (open == text.npos || close == text.npos) return {};
    ProcessLine line{text.substr(open + 1, close - open - 1)};
    std::istringstream rest(text.substr(close + 1));
    std::string state;
    rest >> state >> line.parent;
    return line;
}

struct KnownFileSystem {
    std::uint32_t magic;
    const char* name;
};
// statfs(2), and each project's own headers for those that are not in linux/magic.h.
constexpr std::array known_file_systems{KnownFileSystem{NFS_SUPER_MAGIC, "nfs"},
                                        KnownFileSystem{0x0BD00BD0, "lustre"},
                                        KnownFileSystem{0x47504653, "gpfs"},
                                        KnownFileSystem{0x19830326, "beegfs"},
                                        KnownFileSystem{0x00C36400, "ceph"},
                                        KnownFileSystem{0xFF534D42, "cifs"},
                                        KnownFileSystem{0xFE534D42, "smb2"},
                                        KnownFileSystem{0x65735546, "fuse"},
                                        KnownFileSystem{0x5346414F, "afs"},
                                        KnownFileSystem{PROC_SUPER_MAGIC, "proc"},
                                        KnownFileSystem{SYSFS_MAGIC, "sysfs"},
                                        KnownFileSystem{CGROUP_SUPER_MAGIC, "cgroup"},
                                        KnownFileSystem{CGROUP2_SUPER_MAGIC, "cgroup"},
                                        KnownFileSystem{TMPFS_MAGIC, "tmpfs"},
                                        KnownFileSystem{OVERLAYFS_SUPER_MAGIC, "overlay"},
                                        KnownFileSystem{EXT4_SUPER_MAGIC, "ext4"},
                                        KnownFileSystem{0x58465342, "xfs"},
                                        KnownFileSystem{BTRFS_SUPER_MAGIC, "btrfs"}};

std::string file_system_of(const fs::path& path) {
    struct ::statfs facts {};
    if (::statfs(path.c_str(), &facts) != 0) return "";
    const auto magic = static_cast<std::uint32_t>(facts.f_type);
    const auto found = std::ranges::find(known_file_systems, magic, &KnownFileSystem::magic);
    return found == known_file_systems.end() ? "" : found->name;
}

/// Of the kernel's own files: root may write to the folder, and nothing can be made there.
bool takes_no_files(const std::string& file_system) {
    return file_system == "proc" || file_system == "sysfs" || file_system == "cgroup";
}

/// The folder itself, or what of it is there.
fs::path existing_part(fs::path path) {
    std::error_code ignored;
    while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
    return path;
}

bool is_leftover_name(const std::string& name) {
    constexpr std::array beginnings{
        "vader_segment.", "sm_segment.", "nccl-", "torch_", "psm2_shm.", "psm3_shm.", "lockstep"};
    return std::ranges::any_of(beginnings,
                               [&](const char* each) { return name.starts_with(each); });
}

bool is_old_and_mine(const fs::path& file) {
    struct ::stat facts {};
    if (::stat(file.c_str(), &facts) != 0 || facts.st_uid != ::getuid()) return false;
    constexpr double hour_s = 3600;
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    return std::difftime(now, facts.st_mtime) > hour_s;
}

/// Everything that this user's processes have mapped, as one text.
std::string all_maps(const fs::path& root) {
    std::string text;
    std::error_code ignored;
    for (const auto& process : fs::directory_iterator(root / "proc", ignored))
        if (parse_integer(process.path().filename().string()))
            text += text_of(process.path() / "maps") + "\n";
    return text;
}

/// Returns files in /dev/shm that MPI, NCCL or LibTorch left: this user's, older than an hour,
/// mapped by none of the user's processes.
std::vector<std::string> stale_shared_files(const fs::path& root) {
    std::vector<std::string> candidates;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root / "dev/shm", ignored)) {
        const std::string name = entry.path().filename().string();
        if (is_leftover_name(name) && is_old_and_mine(entry.path())) candidates.push_back(name);
    }
    if (candidates.empty()) return candidates;
    const std::string maps = all_maps(root);
    std::erase_if(candidates, [&](const auto& name) { return maps.find(name) != maps.npos; });
    std::ranges::sort(candidates);
    return candidates;
}

/// The ancestors of this process, nearest first: paths, or names if paths are hidden.
std::vector<std::string> ancestors_of_this(const fs::path& root) {
    constexpr int deepest = 64;
    std::vector<std::string> programs;
    auto next = process_line(root / "proc/self").parent;
    for (int depth = 0; next > 0 && depth < deepest; ++depth) {
        const auto process = root / "proc" / std::to_string(next);
        const ProcessLine line = process_line(process);
        if (line.name.empty()) break;
        std::error_code hidden;
        const auto path = fs::read_symlink(process / "exe", hidden);
        programs.push_back(hidden ? line.name : path.string());
        next = line.parent;
    }
    return programs;
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

SystemFacts read_system_facts(const FactSource& source, const NodeTopology& node) {
    SystemFacts system;
    read_frequency(source.root, node, system);
    system.stale_shared_files = stale_shared_files(source.root);
    system.removes_ipc = removes_ipc(source.root);
    system.overcommit =
        static_cast<int>(number_in(source.root / "proc/sys/vm/overcommit_memory").value_or(0));
    system.host_addresses = addresses_in_hosts(source.root, node.host);
    system.nccl_files = nccl_files(source);
    system.redirects_pci = redirects_pci(source.root, node);
    system.port_errors = read_port_errors(source.root);
    system.ras_port_owner = ras_port_owner(source.root);
    system.user = ::getuid();
    return system;
}

/// Facts of `path` below `root`; a relative path starts at the working folder.
FolderFacts folder_facts(const fs::path& root, const std::string& path) {
    FolderFacts folder{.path = path};
    const fs::path full =
        fs::path(path).is_absolute() ? root / fs::path(path).relative_path() : fs::absolute(path);
    struct ::stat facts {};
    folder.exists = ::stat(full.c_str(), &facts) == 0;
    const fs::path real = existing_part(full);
    if (folder.exists || ::stat(real.c_str(), &facts) == 0) folder.inode = facts.st_ino;
    std::error_code ignored;
    folder.holds_run = fs::exists(full / "run.json", ignored);
    folder.is_file = !fs::is_directory(real, ignored);
    folder.file_system = file_system_of(real);
    folder.is_writable = !folder.is_file && ::access(real.c_str(), W_OK | X_OK) == 0 &&
                         !takes_no_files(folder.file_system);
    struct ::statvfs space {};
    if (::statvfs(real.c_str(), &space) != 0 || space.f_blocks == 0) return folder;
    folder.free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
    folder.total_bytes = static_cast<std::uint64_t>(space.f_blocks) * space.f_frsize;
    if (space.f_files > 0) folder.free_inodes = space.f_favail;  // some have no fixed number
    return folder;
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

// proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice; user has guest.
CpuTime read_cpu_time(const std::vector<int>& cpus, const fs::path& root) {
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    CpuTime time;
    for (const std::string& line : split(text_of(root / "proc/stat"), '\n')) {
        if (!line.starts_with("cpu")) break;
        std::istringstream words(line.substr(3));
        int cpu = -1;
        double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0;
        double stolen = 0;
        words >> cpu >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> stolen;
        if (!words || line[3] == ' ' || std::ranges::count(cpus, cpu) == 0) continue;
        time.busy_s += (user + nice + system + irq + softirq + stolen) / ticks;
        time.stolen_s += stolen / ticks;
    }
    return time;
}

std::map<std::string, std::uint64_t> read_port_errors(const fs::path& root) {
    constexpr std::array wanted{"packet_seq_err",
                                "local_ack_timeout_err",
                                "rnr_nak_retry_err",
                                "symbol_error",
                                "link_downed"};
    std::map<std::string, std::uint64_t> errors;
    for (const fs::path& device : entries_of(root / "sys/class/infiniband"))
        for (const fs::path& port : entries_of(device / "ports"))
            for (const char* group : {"counters", "hw_counters"})
                for (const char* name : wanted)
                    if (const auto count = number_in(port / group / name))
                        errors[fmt::format("{}:{} {}",
                                           device.filename().string(),
                                           port.filename().string(),
                                           name)] = *count;
    return errors;
}

std::vector<std::string> pmix_errors_in(std::string_view text) {
    constexpr std::array signs{
        "PMIX ERROR", "gds_ds12", "gds_ds21", "psec", "PMIX_ERR", "pmix_server_init"};
    std::vector<std::string> errors;
    for (const std::string& line : split(text, '\n')) {
        if (errors.size() == most_messages) break;
        const bool is_sign = std::ranges::any_of(
            signs, [&](const char* sign) { return line.find(sign) != line.npos; });
        if (is_sign && std::ranges::count(errors, line) == 0) errors.push_back(line);
    }
    return errors;
}

}  // namespace lockstep
