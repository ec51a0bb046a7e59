// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/known_faults.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int serialized = 2;  // MPI_THREAD_SERIALIZED, in MPI's order of levels
constexpr double most_skew_s = 0.05;

/// SLURM's own steps (batch, interactive, extern) have numbers from here on.
constexpr std::int64_t first_special_step = 4294967000;

/// The launcher's claim beside MPI's, as check_launch() judges it.
Ailments judged(const DoctorFacts& facts, bool is_about_singletons) {
    try {
        const auto launch = read_launch_facts(Environment(facts.environment));
        const bool are_singletons = facts.size == 1 && launch.size.value_or(1) > 1;
        if (are_singletons == is_about_singletons) check_launch(launch, facts.rank, facts.size);
    } catch (const Error& error) {
        if (kind_of(error) != ErrorKind::launch_mismatch && is_about_singletons) return {};
        return {{.what = error.what(), .why = error.why(), .fix = error.fix()}};
    }
    return {};
}

bool is_mpirun(const std::string& path) {
    const auto name = std::filesystem::path(path).filename().string();
    return std::ranges::count(mpirun_names, name) > 0;
}

/// On other nodes mpirun's daemon starts the ranks.
bool is_launcher(const std::string& path) {
    const auto name = std::filesystem::path(path).filename().string();
    return is_mpirun(path) || std::ranges::count(mpi_daemon_names, name) > 0;
}

/// In a batch script or salloc's shell, where srun or mpirun would start the tasks.
Ailments idle_tasks(const DoctorFacts& facts) {
    const auto tasks = whole_variable(facts, "SLURM_NTASKS");
    const bool is_alone = facts.size == 1 && !facts.environment.contains("OMPI_COMM_WORLD_SIZE") &&
                          !facts.environment.contains("SLURM_STEP_ID");
    if (!is_alone || tasks.value_or(1) < 2 || !facts.environment.contains("SLURM_JOB_ID"))
        return {};
    return {{.what = fmt::format("this process is 1 of the {} tasks of the SLURM job", *tasks),
             .why = "No srun and no mpirun started it: the cores of the other tasks stay idle.",
             .fix = "srun --mpi=pmix lockstep ..., or mpirun lockstep ...",
             .severity = Severity::warning}};
}

Ailments singletons(const DoctorFacts& facts) {
    auto found = judged(facts, true);
    if (found.empty()) return idle_tasks(facts);
    const auto& ancestors = facts.program.ancestors;
    const bool is_leftover = facts.environment.contains("OMPI_COMM_WORLD_SIZE") &&
                             !ancestors.empty() && std::ranges::none_of(ancestors, is_launcher);
    for (Ailment& ailment : found)
        if (is_leftover) {
            ailment.why =
                "No mpirun is among the programs that started this one: the variables "
                "are left over from another launch.";
            ailment.fix = "unset ${!OMPI_COMM_WORLD_*} ${!PMIX_*}, then mpirun -np N lockstep ...";
        }
    return found;
}

Ailments stale_environment(const DoctorFacts& facts) {
    if (auto found = judged(facts, false); !found.empty()) return found;
    const auto local = whole_variable(facts, "OMPI_COMM_WORLD_LOCAL_RANK");
    if (!local || *local == facts.local_rank || facts.size == 1) return {};
    return {{fmt::format("{}, but MPI counts this rank as {} of its node",
                         variable_text(facts, "OMPI_COMM_WORLD_LOCAL_RANK"),
                         facts.local_rank)}};
}

Ailments nested_launch(const DoctorFacts& facts) {
    const auto runs = std::ranges::count_if(facts.program.ancestors, is_mpirun);
    if (runs > 1)
        return {{fmt::format("{} launchers of MPI are above this process, one inside the other",
                             runs)}};
    const auto step = whole_variable(facts, "SLURM_STEP_ID");
    const auto tasks = whole_variable(facts, "SLURM_STEP_NUM_TASKS");
    const auto size = whole_variable(facts, "OMPI_COMM_WORLD_SIZE");
    const bool is_in_step = facts.rank == 0 && runs == 1 && step && *step < first_special_step;
    if (!is_in_step || !tasks || !size || *size <= *tasks) return {};
    return {{.what = fmt::format(
                 "mpirun starts {} ranks inside an srun step of {} tasks", *size, *tasks),
             .fix = fmt::format("srun --overlap --mpi=pmix -n {} lockstep ..., without mpirun and "
                                "--np; or on this node alone: unset ${{!SLURM_*}}",
                                *size)}};
}

/// Returns true if a file is below the folder that holds `launcher`'s bin.
bool shares_prefix(const std::string& launcher, const std::string& library) {
    const auto prefix = std::filesystem::path(launcher).parent_path().parent_path().string();
    return library.starts_with(prefix);
}

Ailments two_mpis(const DoctorFacts& facts) {
    const auto& libraries = facts.program.mpi_libraries;
    if (libraries.size() > 1)
        return {{fmt::format("{} and {} are both loaded", libraries[0], libraries[1])}};
    const auto launcher = std::ranges::find_if(facts.program.ancestors, is_mpirun);
    const bool is_known = launcher != facts.program.ancestors.end() && !libraries.empty();
    if (!is_known || !launcher->starts_with('/') || shares_prefix(*launcher, libraries[0]))
        return {};
    return {{.what = fmt::format("linked with {}, started by {}", libraries[0], *launcher),
             .severity = Severity::warning}};
}

Ailments mixed_versions(JobRanks ranks) {
    const std::pair<const char*, std::string ProgramFacts::*> programs[] = {
        {"Lockstep", &ProgramFacts::version},
        {"MPI", &ProgramFacts::mpi_version},
        {"NCCL", &ProgramFacts::nccl_version}};
    Ailments found;
    for (const auto& [name, version] : programs) {
        RanksByValue versions;
        for (const DoctorFacts& facts : ranks)
            versions[facts.program.*version].push_back(facts.rank);
        if (versions.size() > 1)
            found.push_back({fmt::format("{} differs: {}", name, values_text(versions))});
    }
    return found;
}

Ailments thread_level(const DoctorFacts& facts) {
    if (facts.program.thread_level >= serialized) return {};
    return {{fmt::format("MPI offers thread level {} of 3", facts.program.thread_level)}};
}

Ailments uneven_nodes(JobRanks ranks) {
    const auto nodes = nodes_of(ranks);
    RanksByValue counts;
    for (const RanksOfNode& node : nodes) {
        const auto count = static_cast<int>(node.size());
        if (node.back()->rank - node.front()->rank != count - 1)
            return {{fmt::format(
                "{} has {} ranks between {} and {}: neighbouring ranks are on different nodes",
                node.front()->node.host,
                count,
                node.front()->rank,
                node.back()->rank)}};
        for (const DoctorFacts* facts : node)
            counts[fmt::format("{} a node", count)].push_back(facts->rank);
    }
    if (counts.size() < 2) return {};
    return {{fmt::format("nodes have different numbers of ranks: {}", values_text(counts))}};
}

Ailments pmix_errors(const DoctorFacts& facts) {
    Ailments found;
    for (const std::string& line : facts.program.launcher_messages)
        found.push_back({fmt::format("the launcher wrote: {}", line)});
    return found;
}

Ailments clock_skew(const RanksOfNode& node) {
    const auto offset = node.front()->network.clock_offset_s;
    if (!offset || std::abs(*offset) <= most_skew_s) return {};
    return {{.what = fmt::format("the clock is {} {} rank 0's",
                                 duration_text(std::abs(*offset)),
                                 *offset > 0 ? "ahead of" : "behind"),
             .ranks = {node.front()->rank}}};
}

/// Of versions; srun's only matters where it starts the ranks.
Ailments known_bad_versions(JobRanks ranks) {
    const DoctorFacts& first = ranks.front();
    const bool is_by_mpirun = first.environment.contains("OMPI_COMM_WORLD_SIZE");
    Ailments found;
    for (const KnownFault& fault : known_faults({.nccl = version_number(first.program.nccl_version),
                                   .pmix = first.program.pmix_version,
                                   .slurm = is_by_mpirun ? 0 : first.program.slurm_version,
                                   .has_several_hosts = nodes_of(ranks).size() > 1,
                                   .disables_pxn = first.environment.contains("NCCL_PXN_DISABLE")}))
        found.push_back(
            {.what = fault.what, .why = "The source is " + fault.source + ".", .fix = fault.fix});
    return found;
}

const std::array launch_table{
    DoctorCheck{"D1",
                "each process runs alone",
                "The launcher started several processes, but MPI does not join them.",
                "mpirun -np N lockstep ..., or srun --mpi=pmix",
                singletons,
                Severity::error},
    DoctorCheck{"D2",
                "launcher and MPI number ranks differently",
                "Variables of another launch are exported, or were inherited by a nested start.",
                "start from a clean shell: unset ${!OMPI_*} ${!PMIX_*} ${!SLURM_*}",
                stale_environment,
                Severity::error},
    DoctorCheck{"D3",
                "one launcher inside another",
                "The inner launcher gets the outer one's cores and variables, not the job's.",
                "start mpirun from the batch script itself, not below srun or another mpirun; or "
                "use srun --mpi=pmix alone",
                nested_launch,
                Severity::error},
    DoctorCheck{"D4",
                "two MPI libraries",
                "A program that is linked with one MPI and started by another hangs or runs alone.",
                "load one MPI module only, and use the mpirun that belongs to the library",
                two_mpis,
                Severity::error},
    DoctorCheck{"D5",
                "ranks run different versions",
                "Bits are promised for one version of everything.",
                "use one installation on a shared file system, the same module on all nodes",
                mixed_versions,
                Severity::error},
    DoctorCheck{"D6",
                "MPI without threads",
                "Gradients and checkpoints are exchanged by different threads.",
                "use an MPI built with thread support (MPI_THREAD_SERIALIZED or more)",
                thread_level,
                Severity::error},
    DoctorCheck{"D7",
                "ranks do not fill nodes in order",
                "Neighbouring ranks sum first. If they are on different nodes, more data cross the "
                "network.",
                "mpirun --map-by slot, or srun/sbatch -m block with --ntasks-per-node",
                uneven_nodes},
    DoctorCheck{"D8",
                "PMIx reports errors",
                "Its shared-memory store or its security module does not work here.",
                "export PMIX_MCA_gds=hash; for psec messages export PMIX_MCA_psec=native",
                pmix_errors},
    DoctorCheck{"D9",
                "clocks differ",
                "Logs of different nodes are out of order, and files seem to come from the future.",
                "ask the staff to check the node's time service (chronyc tracking)",
                clock_skew,
                Severity::warning,
                Pace::slow},
    DoctorCheck{"D10",
                "a version is known to fail",
                "Others have met it.",
                "use another version; the finding says which",
                known_bad_versions},
};

}  // namespace

std::span<const DoctorCheck> launch_checks() {
    return launch_table;
}

}  // namespace lockstep
