// SPDX-License-Identifier: Apache-2.0
#include "submit/slurm_facts_query.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"

#include <algorithm>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr double patience_s = 15;  // of one command; SLURM's own is 9 s for a controller
constexpr int tries = 3;

void check_installed(const std::string& program) {
    check(!find_program(program).empty(), [&] {
        return Error(
            "E529",
            fmt::format("there is no SLURM here: '{}' is not on PATH", program),
            "",
            "call it on a login node, or train without SLURM: 'lockstep train --np 4 ...'");
    });
}

ProcessResult run_once(const std::vector<std::string>& argv) {
    try {
        return run_process(argv, {}, patience_s);
    } catch (const Error& error) {
        if (kind_of(error) != ErrorKind::timed_out) throw;
        return {.exit_code = 1, .output = error.what()};
    }
}

// SLURM's programs put their name before warnings; output and warnings come in one stream.
std::string without_warnings(const std::string& output, const std::string& program) {
    std::istringstream lines(output);
    std::string kept;
    for (std::string line; std::getline(lines, line);)
        if (!line.starts_with(program + ": ")) kept += line + "\n";
    return kept;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);)
        if (!line.empty() && std::ranges::count(lines, line) == 0) lines.push_back(line);
    return lines;
}

// The job's state, or nothing. What `squeue` does not know makes it fail, like a controller that is
// away.
std::optional<std::string> state_of(const std::string& job) {
    const auto answer = run_once({"squeue", "-h", "-t", "all", "-j", job, "-o", "%T"});
    const auto states = lines_of(answer.output);
    if (answer.exit_code == 0 && states.empty()) return std::nullopt;
    if (answer.exit_code == 0) return states.size() == 1 ? states.front() : "SEVERAL";
    if (answer.output.find("Invalid job id") != answer.output.npos) return std::nullopt;
    throw slurm_failure("squeue", answer.output);
}

std::string user_name() {
    const passwd* user = ::getpwuid(::getuid());
    return user != nullptr ? user->pw_name : fmt::format("{}", ::getuid());
}

void query_accounts(SlurmFacts& facts) {
    const auto rows = parse_associations(ask_slurm({"sacctmgr",
                                                    "-n",
                                                    "-P",
                                                    "show",
                                                    "associations",
                                                    "user=" + facts.user,
                                                    "format=account,qos"}));
    facts.accounts = rows.accounts;
    facts.qos = rows.qos;
}

}  // namespace

std::string ask_slurm(const std::vector<std::string>& argv) {
    check_installed(argv[0]);
    ProcessResult answer;
    for (int attempt = 0; attempt < tries; ++attempt) {
        answer = run_once(argv);
        if (answer.exit_code == 0) return without_warnings(answer.output, argv[0]);
        const Error error = slurm_failure(argv[0], answer.output);
        if (kind_of(error) == ErrorKind::no_authorization) throw error;
    }
    throw slurm_failure(argv[0], answer.output);
}

SlurmFacts query_slurm(const JobRequest& request, Launcher launcher) {
    check_installed("sbatch");
    SlurmFacts facts;
    facts.partitions =
        parse_partitions(ask_slurm({"scontrol", "--all", "show", "partition", "--oneliner"}));
    facts.groups = parse_node_groups(ask_slurm({"sinfo", "--all", "-h", "-o", node_group_format}));
    auto config = parse_slurm_config(ask_slurm({"scontrol", "show", "config"}));
    // SLURM counts the index 0, too.
    if (const auto most = parse_integer(config["MaxArraySize"])) facts.most_array_index = *most - 1;
    facts.has_accounts = config["AccountingStorageType"].ends_with("slurmdbd");
    facts.user = user_name();
    if (facts.has_accounts) query_accounts(facts);
    if (launcher == Launcher::srun)
        facts.mpi_types = parse_mpi_types(ask_slurm({"srun", "--mpi=list"}));
    for (const AwaitedJob& awaited : request.awaited_jobs)
        if (const auto state = state_of(awaited.job)) facts.jobs[awaited.job] = *state;
    if (!request.reservation.empty())
        facts.reservations =
            parse_reservations(ask_slurm({"scontrol", "show", "reservation", "--oneliner"}));
    if (!request.licences.empty())
        facts.licences = parse_licences(ask_slurm({"scontrol", "show", "license", "--oneliner"}));
    return facts;
}

}  // namespace lockstep
