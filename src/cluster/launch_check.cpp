// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/core/error.hpp"

#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Returns the variables that name a rank or a size, as "NAME=value NAME=value".
std::string values_text(const LaunchFacts& facts) {
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

Error singletons(const LaunchFacts& facts, int mpi_rank, int mpi_size) {
    const auto name = launcher_name(facts.launcher);
    const auto what = fmt::format("{} started {} processes, but MPI sees rank {} of {} in each",
                                  name,
                                  *facts.size,
                                  mpi_rank,
                                  mpi_size);
    const auto values = values_text(facts);
    if (facts.launcher == Launcher::torchrun) {
        return {"E604",
                what,
                "torchrun starts processes that do not know MPI; found " + values,
                fmt::format("mpirun -np {} lockstep train ...", *facts.size)};
    }
    if (facts.launcher == Launcher::pmi) {
        return {"E604",
                what,
                "this is the mpiexec of MPICH or Intel MPI, and the program is linked with Open "
                "MPI; found " +
                    values,
                fmt::format("lockstep train --np {} ..., or Open MPI's mpirun -np {} lockstep "
                            "train ...; where no mpiexec started this: unset ${{!PMI_*}}",
                            *facts.size,
                            *facts.size)};
    }
    if (facts.launcher == Launcher::srun) {
        const auto why = facts.pmix_rank ? "SLURM's PMIx and this program's MPI do not speak the "
                                           "same version; found "
                                         : "srun offered no PMIx; found ";
        const auto fix = facts.pmix_rank
                             ? fmt::format("mpirun -np {} lockstep train ...", *facts.size)
                             : fmt::format(
                                   "srun --mpi=pmix -n {} lockstep train ...  (srun "
                                   "--mpi=list shows what this SLURM has), or mpirun; where no "
                                   "srun started this: unset ${{!SLURM_*}}",
                                   *facts.size);
        return {"E604", what, why + values, fix};
    }
    return {
        "E604",
        what,
        "this mpirun belongs to another MPI than the one the program is linked with, or the "
        "variables are left over from another launch; found " +
            values,
        "where no mpirun started this: unset ${!OMPI_*} ${!PMIX_*}; else use the mpirun of the MPI "
        "that `ldd $(command -v lockstep) | grep libmpi` shows"};
}

Error disagreement(const LaunchFacts& facts, std::string what) {
    return {"E604",
            std::move(what),
            "the variables come from another launch than this one (exported, or inherited by a "
            "nested start); found " +
                values_text(facts),
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

void check_launch(const LaunchFacts& facts, int mpi_rank, int mpi_size) {
    if (facts.launcher == Launcher::none || !facts.size) return;
    check(mpi_size > 1 || *facts.size <= 1, [&] { return singletons(facts, mpi_rank, mpi_size); });
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
                : fmt::format("leave --np out, and start it as: mpirun -np {} lockstep ...; "
                              "where no mpirun started this: unset ${{!OMPI_COMM_WORLD_*}} "
                              "${{!PMIX_*}}",
                              asked));
    });
}

}  // namespace lockstep
