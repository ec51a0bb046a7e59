// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/mpirun.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/map.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/launch/supervise.hpp"

#include "launch_network.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

void check_root(const Environment& environment) {
    const bool allowed = environment.text("OMPI_ALLOW_RUN_AS_ROOT").value_or("") == "1" &&
                         environment.text("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM").value_or("") == "1";
    check(::geteuid() != 0 || allowed, [] {
        return Error("E603",
                     "Open MPI refuses to run as root",
                     "a mistake as root can damage the whole system",
                     "use your own account; in a container: export OMPI_ALLOW_RUN_AS_ROOT=1 "
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
    });
}

using Words = std::vector<std::string>;

// Ranks of this machine concern no resource manager. mpirun would take a job's tasks for slots, ask
// its daemon for other nodes, and believe variables of a job that is over. A site's file of hosts
// is for several machines, too. Open MPI 4.1's rsh ends mpirun where there is no ssh, as in many
// containers. Names that an Open MPI does not have are skipped.
Words words_for_this_machine() {
    Words words{"--mca", "ras", "^slurm,tm,gridengine,lsf,loadleveler,alps,pbs,flux,pals"};
    words.insert(words.end(), {"--mca", "plm", "^rsh,slurm,tm,lsf,alps,pals"});
    for (const char* name : {host_file_setting.name_in_4, host_file_setting.name_in_5})
        words.insert(words.end(), {"--mca", name, "none"});
    return words;
}

// One node: shared memory only, no sockets.
Words words_for_one_node(const LaunchRequest& request) {
    if (!request.oversubscribe) check_cores(request.np);
    // Open MPI 5 complains of UCX, which is not used here, in each rank.
    Words words{"-np", fmt::format("{}", request.np), "--mca", "btl", "self,vader"};
    words.insert(words.end(), {"--mca", "osc", "^ucx"});
    const Words about_here = words_for_this_machine();
    words.insert(words.end(), about_here.begin(), about_here.end());
    if (!request.folder.empty())
        for (const char* place : {session_folder_setting.name_in_4,
                                  session_folder_setting.name_in_5,
                                  "btl_vader_backing_directory",
                                  "osc_sm_backing_directory"})
            words.insert(words.end(), {"--mca", place, request.folder.string()});
    return words;
}

LaunchNetwork chosen_network(const std::vector<HostSlots>& hosts, const Environment& environment) {
    Words names;
    for (const HostSlots& host : hosts) names.push_back(host.host);
    LaunchNetwork network =
        network_towards(names, addresses_of(read_topology({"/", nullptr})), environment);
    if (!network.note.empty()) once(Level::info, "{}", network.note);
    return network;
}

Words words_for_hosts(const std::vector<HostSlots>& hosts,
                      std::size_t ranks,
                      const LaunchNetwork& network) {
    Words listed;
    for (const HostSlots& host : hosts)
        listed.push_back(fmt::format("{}:{}", host.host, host.slots));
    Words words{
        "-np", fmt::format("{}", ranks), "--host", fmt::format("{}", fmt::join(listed, ","))};
    const Words about_network = network_words(network);
    words.insert(words.end(), about_network.begin(), about_network.end());
    return words;
}

// If LibTorch has no room (2.11 for CPUs takes 440 to 490 MiB of addresses, for GPUs more), the
// loader or one of its constructors ends the program before main(), without an explanation. So it
// is tried, if the limit is low enough to be a reason.
void check_addresses(const fs::path& program) {
    constexpr rlim_t plenty = rlim_t{16} << 30;
    rlimit addresses{};
    if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur >= plenty) return;
    if (program == this_executable()) return;  // it has begun
    Words argv{"env", "-i"};                   // alone: it is no rank
    for (const char* name : {"LD_LIBRARY_PATH", "LD_PRELOAD"})
        if (const auto value = Environment().text(name))
            argv.push_back(fmt::format("{}={}", name, *value));
    argv.insert(argv.end(), {program.string(), "version"});
    const ProcessResult tried = run_process(argv, {}, 60);
    if (tried.exit_code == 0) return;
    throw Error("E225",
                fmt::format("'{}' has too little memory to start", program.string()),
                fmt::format("'ulimit -v' leaves a process {} of addresses, and LibTorch's "
                            "libraries alone need 440 MiB or more. Its error: {}",
                            bytes_text(addresses.rlim_cur),
                            printable(tried.output.substr(0, tried.output.find('\n')))),
                "raise the limit: ulimit -v unlimited (Slurm: --mem)");
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

Error no_room(int ranks, const std::string& found) {
    return Error(
        "E632",
        fmt::format("{} rank(s) need {} for Open MPI's own files, and no folder has so much room{}",
                    ranks,
                    bytes_text(room_for(ranks)),
                    found),
        "they are in /dev/shm or, if that is too small, below TMPDIR",
        "make /dev/shm larger (in a container: --shm-size), or set TMPDIR to a folder with room");
}

fs::path base_for(int ranks) {
    std::string found;
    for (const fs::path& base : possible_bases()) {
        const std::uint64_t room = free_bytes(base);
        if (room >= room_for(ranks)) {
            if (!found.empty())
                once(Level::warn,
                     "Open MPI's own files need {}{}: they go to {}, which may be slower",
                     bytes_text(room_for(ranks)),
                     found,
                     base.string());
            return base;
        }
        found += fmt::format(", {} has {}", base.string(), bytes_text(room));
    }
    throw no_room(ranks, found);
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

}  // namespace

std::vector<std::string> mpirun_line(const LaunchRequest& request, const Environment& environment) {
    check_root(environment);
    Words argv{"mpirun"};
    const auto add = [&](const Words& words) {
        argv.insert(argv.end(), words.begin(), words.end());
    };
    LaunchNetwork network;
    if (request.hosts.empty()) {
        add(words_for_one_node(request));
    } else {
        const std::vector<HostSlots> hosts = parse_hosts(request.hosts);
        const bool is_given = request.oversubscribe && request.np > 0;
        const std::size_t ranks = is_given ? static_cast<std::size_t>(request.np)
                                           : lay_out(hosts, request.np, MapBy::slot).size();
        network = chosen_network(hosts, environment);
        add(words_for_hosts(hosts, ranks, network));
        if (!network.is_needed) add(words_for_this_machine());
    }
    add({"--bind-to", "none"});
    add(carrier_words(network, environment));
    if (request.oversubscribe) argv.emplace_back("--oversubscribe");
    argv.push_back(request.program.string());
    argv.insert(argv.end(), request.words.begin(), request.words.end());
    return argv;
}

void check_rank_program(const fs::path& program) {
    check(!find_program(program.string()).empty(), [&] {
        return Error("E610",
                     fmt::format("cannot start '{}'", program.string()),
                     "it must be in the folder of lockstep, but is not there",
                     "build or install both programs into one folder");
    });
    check_addresses(program);
}

void become_rank(const fs::path& program,
                 const std::vector<std::string>& words,
                 const std::map<std::string, std::string>& environment) {
    check_rank_program(program);
    std::vector<std::string> argv = {program.string()};
    argv.insert(argv.end(), words.begin(), words.end());
    become_process(argv, environment);
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
