// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/mpirun.hpp"

#include "lockstep/cluster/map.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"

#include "launch_limits.hpp"
#include "launch_network.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

void check_root(const Environment& environment) {
    const bool allowed = environment.text("OMPI_ALLOW_RUN_AS_ROOT").value_or("") == "1" &&
                         environment.text("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM").value_or("") == "1";
    check(::geteuid() != 0 || allowed, [] {
        return Error("E603",
                     "Open MPI refuses to run as root",
                     "a mistake of root's can damage the whole system",
                     "use your own account; in a container: export OMPI_ALLOW_RUN_AS_ROOT=1 "
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
    });
}

using Words = std::vector<std::string>;

// One node: shared memory only, no sockets.
Words words_for_one_node(const LaunchRequest& request) {
    if (!request.oversubscribe) check_cores(request.np);
    Words words{"-np", fmt::format("{}", request.np), "--mca", "btl", "self,vader"};
    if (!request.folder.empty())
        for (const char* place :
             {"orte_tmpdir_base", "btl_vader_backing_directory", "osc_sm_backing_directory"})
            words.insert(words.end(), {"--mca", place, request.folder.string()});
    return words;
}

Words words_for_hosts(const LaunchRequest& request, const Environment& environment) {
    const std::vector<HostSlots> hosts = parse_hosts(request.hosts);
    const std::size_t ranks = request.oversubscribe && request.np > 0
                                  ? static_cast<std::size_t>(request.np)
                                  : lay_out(hosts, request.np, MapBy::slot).size();
    Words names, listed;
    for (const HostSlots& host : hosts) {
        names.push_back(host.host);
        listed.push_back(fmt::format("{}:{}", host.host, host.slots));
    }
    Words words{
        "-np", fmt::format("{}", ranks), "--host", fmt::format("{}", fmt::join(listed, ","))};
    const LaunchNetwork network =
        network_towards(names, addresses_of(read_topology({"/", nullptr})), environment);
    if (!network.note.empty()) once(Level::info, "{}", network.note);
    const Words about_network = network_words(network);
    words.insert(words.end(), about_network.begin(), about_network.end());
    return words;
}

}  // namespace

std::vector<std::string> mpirun_line(const LaunchRequest& request, const Environment& environment) {
    check_root(environment);
    Words argv{"mpirun"};
    const auto add = [&](const Words& words) {
        argv.insert(argv.end(), words.begin(), words.end());
    };
    add(request.hosts.empty() ? words_for_one_node(request)
                              : words_for_hosts(request, environment));
    // Quiet: our own messages say what went wrong.
    add({"--bind-to", "none", "--quiet", "--mca", "pml", "ob1"});
    if (request.oversubscribe) argv.emplace_back("--oversubscribe");
    argv.push_back(request.program.string());
    argv.insert(argv.end(), request.words.begin(), request.words.end());
    return argv;
}

void check_rank_program(const std::filesystem::path& program) {
    check(!find_program(program.string()).empty(), [&] {
        return Error("E610",
                     fmt::format("cannot start '{}'", program.string()),
                     "it belongs beside lockstep, but is not there",
                     "build or install both programs into one folder");
    });
}

void become_rank(const std::filesystem::path& program,
                 const std::vector<std::string>& words,
                 const std::map<std::string, std::string>& environment) {
    check_rank_program(program);
    std::vector<std::string> argv = {program.string()};
    argv.insert(argv.end(), words.begin(), words.end());
    become_process(argv, environment);
}

std::string shell_text(const std::vector<std::string>& argv) {
    std::string line;
    for (const std::string& word : argv) {
        const bool plain =
            !word.empty() && word.find_first_not_of(
                                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789-_./=:,+@%") == word.npos;
        std::string quoted = "'";
        for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
        line += (line.empty() ? "" : " ") + (plain ? word : quoted + "'");
    }
    return line;
}

}  // namespace lockstep
