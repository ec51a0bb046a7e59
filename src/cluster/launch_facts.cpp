// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

using Number = std::optional<std::int64_t>;

/// Returns the task count of node `node` in SLURM's "4(x2),1"; nothing if the text has another
/// form.
Number tasks_on_node(std::string_view text, std::int64_t node) {
    for (const std::string& item : split(text, ',')) {
        const auto paren = item.find("(x");
        const auto tasks = parse_integer(item.substr(0, paren));
        Number nodes = 1;
        if (paren != item.npos) {
            nodes = item.ends_with(')')
                        ? parse_integer(item.substr(paren + 2, item.size() - paren - 3))
                        : std::nullopt;
        }
        if (!tasks || !nodes || *nodes < 1) return {};
        if (node < *nodes) return tasks;
        node -= *nodes;
    }
    return {};
}

void read_slurm(const Environment& environment, LaunchFacts& facts) {
    facts.slurm_job_id = environment.text("SLURM_JOB_ID").value_or("");
    facts.slurm_restart_count = environment.integer("SLURM_RESTART_COUNT").value_or(0);
    facts.is_heterogeneous = environment.text("SLURM_HET_SIZE").has_value();
    if (!environment.text("SLURM_STEP_ID")) return;
    facts.slurm_step_tasks = environment.integer("SLURM_STEP_NUM_TASKS");
    if (!facts.slurm_step_tasks) facts.slurm_step_tasks = environment.integer("SLURM_NTASKS");
}

void read_mpirun(const Environment& environment, LaunchFacts& facts) {
    facts.launcher = Launcher::mpirun;
    facts.size = environment.integer("OMPI_COMM_WORLD_SIZE");
    facts.rank = environment.integer("OMPI_COMM_WORLD_RANK");
    facts.local_rank = environment.integer("OMPI_COMM_WORLD_LOCAL_RANK");
    facts.local_size = environment.integer("OMPI_COMM_WORLD_LOCAL_SIZE");
}

void read_srun(const Environment& environment, LaunchFacts& facts) {
    facts.launcher = Launcher::srun;
    facts.size = facts.slurm_step_tasks;
    facts.rank = environment.integer("SLURM_PROCID");
    facts.local_rank = environment.integer("SLURM_LOCALID");
    auto tasks = environment.text("SLURM_STEP_TASKS_PER_NODE");
    if (!tasks) tasks = environment.text("SLURM_TASKS_PER_NODE");
    const auto node = environment.integer("SLURM_NODEID");
    if (tasks && node) facts.local_size = tasks_on_node(*tasks, *node);
}

void read_torchrun(const Environment& environment, LaunchFacts& facts) {
    facts.launcher = Launcher::torchrun;
    facts.size = environment.integer("WORLD_SIZE");
    facts.rank = environment.integer("RANK");
    facts.local_rank = environment.integer("LOCAL_RANK");
    facts.local_size = environment.integer("LOCAL_WORLD_SIZE");
}

// MPICH's and Intel's mpiexec, whose protocol SLURM's PMI-2 has, too.
void read_pmi(const Environment& environment, LaunchFacts& facts) {
    facts.launcher = Launcher::pmi;
    facts.size = environment.integer("PMI_SIZE");
    facts.rank = environment.integer("PMI_RANK");
}

/// Returns the variables that name a rank or a size, as "NAME=value NAME=value".
std::string shown_values(const LaunchFacts& facts) {
    constexpr std::array shown{"OMPI_COMM_WORLD_RANK",
                               "OMPI_COMM_WORLD_SIZE",
                               "PMIX_RANK",
                               "PMI_RANK",
                               "PMI_SIZE",
                               "SLURM_PROCID",
                               "SLURM_STEP_NUM_TASKS",
                               "SLURM_NTASKS",
                               "SLURM_JOB_ID",
                               "RANK",
                               "WORLD_SIZE"};
    std::string text;
    for (const char* name : shown) {
        const auto found = facts.found.find(name);
        if (found == facts.found.end()) continue;
        text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, found->second);
    }
    return text;
}

Error singletons_error(const LaunchFacts& facts, int mpi_rank, int mpi_size) {
    std::string why =
        "this mpirun belongs to another MPI than the one the program is linked with, or the "
        "variables are left over from another launch";
    std::string fix =
        "where no mpirun started this: unset ${!OMPI_*} ${!PMIX_*}; else use the mpirun of the MPI "
        "that `ldd $(command -v lockstep) | grep libmpi` shows";
    if (facts.launcher == Launcher::pmi) {
        why = "this is the mpiexec of MPICH or Intel MPI, and the program is linked with Open MPI";
        fix = fmt::format(
            "lockstep train --np {0} ..., or Open MPI's mpirun -np {0} lockstep "
            "train ...; where no mpiexec started this: unset ${{!PMI_*}}",
            *facts.size);
    } else if (facts.launcher == Launcher::srun && !facts.pmix_rank) {
        why = "srun offered no PMIx";
        fix = fmt::format(
            "srun --mpi=pmix -n {} lockstep train ...  (srun --mpi=list shows what this SLURM "
            "has), or mpirun; where no srun started this: unset ${{!SLURM_*}}",
            *facts.size);
    } else if (facts.launcher != Launcher::mpirun) {
        why = facts.launcher == Launcher::torchrun
                  ? "torchrun starts processes that do not know MPI"
                  : "SLURM's PMIx and this program's MPI do not speak the same version";
        fix = fmt::format("mpirun -np {} lockstep train ...", *facts.size);
    }
    return {"E604",
            fmt::format("{} started {} processes, but MPI sees rank {} of {} in each",
                        launcher_name(facts.launcher),
                        *facts.size,
                        mpi_rank,
                        mpi_size),
            why + "; found " + shown_values(facts),
            fix};
}

Error disagreement(const LaunchFacts& facts, std::string what) {
    return {"E604",
            std::move(what),
            "the variables come from another launch than this one (exported, or inherited by a "
            "nested start); found " +
                shown_values(facts),
            "start from a clean shell: unset ${!OMPI_*} ${!PMIX_*} ${!SLURM_*}, then mpirun -np N "
            "lockstep train ..."};
}

/// mpirun gives every rank the same number by two ways; an exported variable breaks that.
void check_pmix_rank(const LaunchFacts& facts) {
    if (!facts.pmix_rank || !facts.rank || facts.is_heterogeneous) return;
    if (facts.launcher != Launcher::mpirun && facts.launcher != Launcher::srun) return;
    check(*facts.pmix_rank == *facts.rank, [&] {
        return disagreement(facts,
                            fmt::format("{} says rank {}, PMIx says rank {}",
                                        launcher_name(facts.launcher),
                                        *facts.rank,
                                        *facts.pmix_rank));
    });
}

}  // namespace

std::string_view launcher_name(Launcher launcher) {
    constexpr std::string_view names[] = {"none", "mpirun", "srun", "torchrun", "mpiexec"};
    return names[static_cast<std::size_t>(launcher)];
}

LaunchFacts read_launch_facts(const Environment& environment) {
    LaunchFacts facts;
    read_slurm(environment, facts);
    facts.pmix_rank = environment.integer("PMIX_RANK");
    if (environment.text("OMPI_COMM_WORLD_SIZE")) {
        read_mpirun(environment, facts);
    } else if (environment.text("TORCHELASTIC_RUN_ID")) {
        read_torchrun(environment, facts);
    } else {
        const auto pmi_size = environment.integer("PMI_SIZE");
        const bool is_of_srun = facts.slurm_step_tasks && facts.slurm_step_tasks == pmi_size;
        if (pmi_size.value_or(1) > 1 && !is_of_srun)
            read_pmi(environment, facts);
        else if (facts.slurm_step_tasks)
            read_srun(environment, facts);
    }
    for (const auto& [name, reading] : environment.readings()) {
        if (reading.is_set) facts.found.emplace(name, reading.value);
    }
    return facts;
}

void check_launch(const LaunchFacts& facts, int mpi_rank, int mpi_size) {
    if (facts.launcher == Launcher::none || !facts.size) return;
    check(mpi_size > 1 || *facts.size <= 1,
          [&] { return singletons_error(facts, mpi_rank, mpi_size); });
    if (facts.is_heterogeneous) return;
    check(*facts.size == mpi_size && facts.rank.value_or(mpi_rank) == mpi_rank, [&] {
        return disagreement(facts,
                            fmt::format("{} says rank {} of {}, MPI says rank {} of {}",
                                        launcher_name(facts.launcher),
                                        facts.rank.value_or(-1),
                                        *facts.size,
                                        mpi_rank,
                                        mpi_size));
    });
    check_pmix_rank(facts);
}

void check_asked_ranks(const LaunchFacts& facts, std::int64_t asked, int mpi_size) {
    const bool are_singletons = mpi_size == 1 && facts.size.value_or(1) > 1;  // check_launch()'s
    check(asked == 0 || asked == mpi_size || are_singletons, [&] {
        const bool is_step = facts.launcher == Launcher::srun;
        const std::string_view name = is_step ? "srun" : "mpirun";
        return Error(
            "E604",
            fmt::format("{} started {} rank(s), but {} are requested", name, mpi_size, asked),
            fmt::format("--np and --hosts start ranks of their own only where no launcher started "
                        "this process; {} is set",
                        is_step ? "SLURM_STEP_ID" : "OMPI_COMM_WORLD_SIZE or PMIX_RANK"),
            is_step
                ? fmt::format("leave --np out, and start it as: srun --mpi=pmix -n {0} lockstep "
                              "... (in an interactive step: srun --overlap --mpi=pmix -n {0} "
                              "lockstep ...)",
                              asked)
                : fmt::format("leave --np out, and start it as: mpirun -np {} lockstep ...; where "
                              "no mpirun started this: unset ${{!OMPI_COMM_WORLD_*}} ${{!PMIX_*}}",
                              asked));
    });
}

}  // namespace lockstep
