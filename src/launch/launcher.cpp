// SPDX-License-Identifier: Apache-2.0
#include "launcher.hpp"

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/launch/supervise.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t longest_host = 56;  // Open MPI 4.1.4 writes beyond an array with more
constexpr int last_plain_signal = 31;

constexpr std::string_view not_loaded =
    "the ranks' program, or a library that it needs, is missing or closed to this user";

struct OwnCode {
    int code;
    std::string_view meaning;
};

// mpirun's own exit codes, from the numbers in Open MPI's constants.h. Both versions have these.
constexpr OwnCode own_codes[] = {
    {1, "mpirun gives this code for most of its own errors"},
    {127, not_loaded},
    {205, "mpirun lost a daemon: another host, or the network to it (Open MPI's error -51)"},
    {213, "mpirun gives this code after an error message of its own (Open MPI's error -43)"},
    {255, "mpirun could not start its daemon on another host, or failed without saying why"}};

// 4.1's numbers below -100 leave codes that look like signals. A rank has not been started then.
constexpr OwnCode faults_before_ranks[] = {
    {130, "a host cannot execute the program"},
    {131, "a host cannot start the program"},
    {132, "a host has no such program, or may not execute it"},
    {134, "a host has no such program"},
    {135, "a host has no folder of this name, or cannot enter it"},
    {137, "a host cannot start more processes (ulimit -u)"},
    {138, "a host gives no more pipes (ulimit -n)"},
    {139, "a host gives no more pipes (ulimit -n)"}};

template <std::size_t count>
std::string_view meaning_of(int code, const OwnCode (&codes)[count]) {
    const auto* found = std::ranges::find(codes, code, &OwnCode::code);
    return found == std::end(codes) ? std::string_view() : found->meaning;
}

/// Returns the version of the mpirun that is first in PATH: "mpirun (Open MPI) 4.1.4".
std::string mpirun_version() {
    const std::string said = run_process({"mpirun", "--version"}, {}, 10).output;
    return said.substr(0, said.find('\n'));
}

/// Whose mpirun that is, by its own words.
std::string_view owner_of_mpirun(const std::string& version) {
    if (version.find("HYDRA") != version.npos) return "MPICH's";
    return version.find("Intel") != version.npos ? "Intel MPI's" : "not Open MPI's";
}

std::string settings_in(const fs::path& file) {
    constexpr std::size_t most = 4;
    std::vector<std::string> found;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line) && found.size() < most;) {
        const auto begin = line.find_first_not_of(" \t");
        if (begin != line.npos && line[begin] != '#') found.push_back(line.substr(begin));
    }
    return fmt::format("{}", fmt::join(found, ", "));
}

// mpirun's own output is shown above; `meaning` is that of its exit code, or "".
std::string why_alone(std::string_view meaning, std::string_view words) {
    return meaning.empty() ? std::string(words) : fmt::format("{}; {}", meaning, words);
}

Error no_rank(std::string what, std::string_view meaning) {
    const std::string version = mpirun_version();
    const auto error = [&](std::string why, std::string fix) {
        return Error("E697", std::move(what), std::move(why), std::move(fix));
    };
    if (version.find("Open MPI") == version.npos)
        return error(
            fmt::format("the mpirun that comes first in PATH is {} ({})",
                        owner_of_mpirun(version),
                        find_program("mpirun")),
            "put Open MPI's first: export PATH=DIR:$PATH, with the DIR that 'which -a mpirun' "
            "shows for it, or load its module");
    if (meaning == not_loaded)
        return error(std::string(meaning),
                     "'ldd $(command -v lockstep-train)' shows which one; install it, or let this "
                     "user read it");
    const char* const home = std::getenv("HOME");
    const MpiSettings settings = mpi_settings(Environment(), home == nullptr ? "/" : home);
    std::string found, fix;
    if (!settings.variables.empty()) {
        found = settings.variables;
        fix = "unset " + settings.variables;
    }
    if (!settings.lines.empty()) {
        found += (found.empty() ? "" : "; ") + settings.lines + " in " + settings.files;
        fix += (fix.empty() ? "" : ", and ") + ("take the lines out of " + settings.files);
    }
    if (found.empty())
        return error(why_alone(meaning, "its output above, if any, says more"),
                     "try the launcher alone: mpirun -np 2 true");
    return error(
        why_alone(meaning, "its output above says more") + "; settings that it was given: " + found,
        "if its error is about one of them: " + fix);
}

Error error_of(std::string what,
               std::string_view meaning,
               RanksStage stage,
               std::string next_start) {
    if (stage == RanksStage::begun)
        return {"E612",
                what + " while the ranks trained",
                why_alone(meaning, "mpirun failed and ended the ranks; its output is above"),
                std::move(next_start)};
    return no_rank(
        stage == RanksStage::unknown ? std::move(what) : what + " before the ranks began to train",
        meaning);
}

/// Returns true for variables that mpirun and srun set for ranks. A second mpirun would take them
/// for its own and fail, and its ranks are no tasks of the step.
bool is_of_another_launch(const std::string& name) {
    constexpr std::string_view prefixes =
        "OMPI_COMM_WORLD_ OMPI_MCA_ess_base_ OMPI_MCA_orte_ess_ PMIX_SERVER_ PMIX_DSTORE_ "
        "PMI_";
    constexpr std::string_view names =
        "OMPI_APP_CTX_NUM_PROCS OMPI_ARGV OMPI_COMMAND OMPI_FILE_LOCATION OMPI_FIRST_RANKS "
        "OMPI_MCA_initial_wdir OMPI_MCA_orte_app_num OMPI_MCA_orte_bound_at_launch "
        "OMPI_MCA_orte_hnp_uri OMPI_MCA_orte_jobfam_session_dir OMPI_MCA_orte_launch "
        "OMPI_MCA_orte_local_daemon_uri OMPI_MCA_orte_num_nodes "
        "OMPI_MCA_orte_precondition_transports OMPI_MCA_orte_top_session_dir OMPI_NUM_APP_CTX "
        "OMPI_UNIVERSE_SIZE PMIX_ID PMIX_NAMESPACE PMIX_RANK PRTE_LAUNCHED SLURM_LOCALID "
        "SLURM_NODEID SLURM_PROCID SLURM_STEPID SLURM_STEP_ID SLURM_STEP_NUM_TASKS "
        "SLURM_STEP_TASKS_PER_NODE";
    return std::ranges::count(split(names, ' '), name) > 0 ||
           std::ranges::any_of(split(prefixes, ' '),
                               [&](const std::string& prefix) { return name.starts_with(prefix); });
}

void forget_other_launches() {
    const Environment environment;
    // These two are set by users as well.
    if (environment.text("OMPI_MCA_orte_hnp_uri"))
        for (const char* name : {"OMPI_MCA_ess", "OMPI_MCA_pmix"}) ::unsetenv(name);
    for (const char* prefix : {"OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_"})
        for (const std::string& name : environment.names_with_prefix(prefix))
            if (is_of_another_launch(name)) ::unsetenv(name.c_str());
}

void check_host_name() {
    const std::string host = host_name();
    const std::size_t length = std::min(host.find('.'), host.size());
    if (length <= longest_host) return;
    const std::string version = mpirun_version();
    check(version.find("(Open MPI) 4.") == version.npos,
          "E697",
          fmt::format("this mpirun crashes on a host whose name has {} characters", length),
          fmt::format("{} takes {} of them; this host is '{}'", version, longest_host, host),
          "give the host a shorter name (root: hostname NAME; docker run --hostname "
          "NAME; Kubernetes: hostname in the pod's spec), or use Open MPI 5");
}

constexpr std::string_view folder_prefix = "lockstep-launch-";
constexpr const char* memory_folder = "/dev/shm";

// Returns the possible places of a folder, the best first.
std::vector<fs::path> possible_bases() {
    std::vector<fs::path> bases;
    if (::access(memory_folder, W_OK) == 0) bases.emplace_back(memory_folder);
    std::error_code none;
    const fs::path usual = fs::temp_directory_path(none);
    if (!none && ::access(usual.c_str(), W_OK) == 0) bases.push_back(usual);
    return bases;
}

// PMIx takes 12 MiB at once and without it neither fails nor goes on; messages between ranks need
// more with each.
std::uint64_t room_for(int ranks) {
    constexpr std::uint64_t mib = 1 << 20;
    return (16 + 2 * static_cast<std::uint64_t>(std::max(ranks, 1))) * mib;
}

fs::path base_for(int ranks) {
    const std::string needed = bytes_text(room_for(ranks));
    std::string found;
    for (const fs::path& base : possible_bases()) {
        const std::uint64_t room = free_bytes(base);
        if (room >= room_for(ranks)) {
            if (!found.empty())
                once(Level::warn,
                     "Open MPI's own files need {}{}: they go to {}, which may be slower",
                     needed,
                     found,
                     base.string());
            return base;
        }
        found += fmt::format(", {} has {}", base.string(), bytes_text(room));
    }
    throw Error(
        "E632",
        fmt::format("{} rank(s) need {} for Open MPI's own files, and no folder has so much room{}",
                    ranks,
                    needed,
                    found),
        "they are in /dev/shm or, if that is too small, below TMPDIR",
        "make /dev/shm larger (in a container: --shm-size), or set TMPDIR to a folder with room");
}

// The lock of a folder's owner goes with its process, whatever kills it.
UniqueFd lock_of(const fs::path& folder, int flags) {
    UniqueFd file(::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
    if (file && ::flock(file.value(), LOCK_EX | LOCK_NB) != 0) file.reset();
    return file;
}

bool is_abandoned(const fs::path& folder) {
    struct stat facts {};
    return folder.filename().string().starts_with(folder_prefix) &&
           ::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
           facts.st_uid == ::geteuid() && static_cast<bool>(lock_of(folder, 0));
}

void remove_abandoned() {
    std::error_code ignored;
    std::vector<fs::path> found;
    for (const fs::path& base : possible_bases())
        for (const auto& entry : fs::directory_iterator(base, ignored))
            if (is_abandoned(entry.path())) found.push_back(entry.path());
    for (const fs::path& folder : found) fs::remove_all(folder, ignored);
}

// mpirun was seen to need 40 for 2 ranks, 48 for 4 and 64 for 8; with fewer it waits for ever.
rlim_t files_for(int ranks) {
    return 32 + 8 * static_cast<rlim_t>(std::max(ranks, 1));
}

// Nodes of a job may have cores for all ranks, where --np starts them on this node alone.
std::string other_nodes() {
    const auto nodes = parse_integer(Environment().text("SLURM_JOB_NUM_NODES").value_or(""));
    if (nodes.value_or(1) < 2) return {};
    return fmt::format("; over the {} nodes of this job: mpirun lockstep ..., without --np",
                       *nodes);
}

constexpr rlim_t largest_file_of_mpi = 16 << 20;

void settle_open_files(int ranks) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= files_for(ranks)) return;
    check(limit.rlim_max >= files_for(ranks),
          "E693",
          fmt::format("this process may open {} files, mpirun needs {} for {} rank(s)",
                      limit.rlim_max,
                      files_for(ranks),
                      ranks),
          "the limit of this shell or job (ulimit -n) is too low",
          fmt::format("ulimit -n {} or more; or ask the administrators to raise the limit",
                      files_for(ranks)));
    limit.rlim_cur = files_for(ranks);
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

void check_file_size() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return;
    check(limit.rlim_cur >= largest_file_of_mpi,
          "E693",
          fmt::format("files of this process may have at most {}, but Open MPI's have up to {}",
                      bytes_text(limit.rlim_cur),
                      bytes_text(largest_file_of_mpi)),
          "the limit of this shell or job (ulimit -f) is too low; checkpoints can be "
          "larger still",
          "ulimit -f unlimited");
}

}  // namespace

bool is_exit_code_of_ranks(int code) {
    constexpr int by_signal = 128;
    const auto is = [&](ExitCode one) { return code == static_cast<int>(one); };
    const bool is_ours =
        is(ExitCode::complete) || is(ExitCode::do_not_requeue) || is(ExitCode::interrupted) ||
        (code >= static_cast<int>(ExitCode::usage) && code <= static_cast<int>(ExitCode::config));
    return is_ours || (code > by_signal && code <= by_signal + last_plain_signal);
}

std::string_view launcher_code(int code) {
    return meaning_of(code, own_codes);
}

std::string_view launch_fault(int code) {
    return meaning_of(code, faults_before_ranks);
}

Error launcher_failed(int code, RanksStage stage, std::string next_start) {
    return error_of(fmt::format("mpirun ended with exit code {}", code),
                    launcher_code(code),
                    stage,
                    std::move(next_start));
}

Error launcher_crashed(int signal, RanksStage stage, std::string next_start) {
    return error_of(
        fmt::format("mpirun itself was ended by signal {} ({})", signal, ::strsignal(signal)),
        "",
        stage,
        std::move(next_start));
}

MpiSettings mpi_settings(const Environment& environment, const fs::path& home) {
    MpiSettings settings;
    std::vector<std::string> names;
    for (const char* prefix : {"OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_"})
        for (std::string& name : environment.names_with_prefix(prefix))
            names.push_back(std::move(name));
    settings.variables = fmt::format("{}", fmt::join(names, " "));
    for (const char* folder : {".openmpi", ".prte", ".pmix"}) {
        const fs::path file = home / folder / "mca-params.conf";
        const std::string lines = settings_in(file);
        if (lines.empty()) continue;
        settings.lines += (settings.lines.empty() ? "" : ", ") + lines;
        settings.files += (settings.files.empty() ? "" : " ") + file.string();
    }
    return settings;
}

void ready_for_mpirun() {
    forget_other_launches();
    check_host_name();
    // Open MPI's PMIx follows the null pointer that is left then.
    if (std::getenv("HOME") == nullptr && ::getpwuid(::geteuid()) == nullptr)
        ::setenv("HOME", "/", 1);
}

void check_cores(int ranks) {
    const std::size_t cores = read_node_facts().allowed_cpus.size();
    check(cores == 0 || static_cast<std::size_t>(ranks) <= cores,
          "E601",
          fmt::format("--np {} asks for more ranks than cores", ranks),
          fmt::format("this process may use {} core(s)", cores),
          fmt::format("use --np {}, or --oversubscribe for a test", cores) + other_nodes());
}

void settle_limits(int ranks) {
    settle_open_files(ranks);
    check_file_size();
}

LaunchFolder::LaunchFolder(int ranks) {
    remove_abandoned();
    std::string name = base_for(ranks) / fmt::format("{}XXXXXX", folder_prefix);
    check(::mkdtemp(name.data()) != nullptr, [&] { return system_error("create", name, errno); });
    path_ = name;
    lock_ = lock_of(path_, O_CREAT);
}

LaunchFolder::~LaunchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

}  // namespace lockstep
