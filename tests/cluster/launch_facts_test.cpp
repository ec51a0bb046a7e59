// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"

#include "support/unit.hpp"

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchFacts facts_of(const Variables& variables) {
    return read_launch_facts(Environment(variables));
}

const Variables mpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"PMIX_RANK", "2"}};

const Variables srun{{"SLURM_JOB_ID", "77"},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "9"},
                     {"SLURM_NTASKS", "9"},
                     {"SLURM_PROCID", "5"},
                     {"SLURM_LOCALID", "1"},
                     {"SLURM_RESTART_COUNT", "3"},
                     {"SLURM_NODEID", "1"},
                     {"SLURM_STEP_TASKS_PER_NODE", "4(x2),1"}};

const Variables torchrun{{"TORCHELASTIC_RUN_ID", "none"},
                         {"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"}};

Variables with(Variables base, const Variables& more) {
    for (const auto& [name, value] : more) base[name] = value;
    return base;
}

TEST(LaunchFacts, AreEmptyWithoutALauncher) {
    const auto facts = facts_of({{"PATH", "/bin"}});
    EXPECT_EQ(facts.launcher, Launcher::none);
    EXPECT_EQ(facts.size, std::nullopt);
    EXPECT_TRUE(facts.found.empty());
}

TEST(LaunchFacts, ReadMpirunsNumbers) {
    const auto facts = facts_of(mpirun);
    EXPECT_EQ(facts.launcher, Launcher::mpirun);
    EXPECT_EQ(facts.rank, 2);
    EXPECT_EQ(facts.size, 4);
    EXPECT_EQ(facts.local_rank, 0);
    EXPECT_EQ(facts.local_size, 2);
    EXPECT_EQ(facts.found.at("OMPI_COMM_WORLD_SIZE"), "4");
}

TEST(LaunchFacts, ReadSrunsNumbersAndTheJob) {
    const auto facts = facts_of(srun);
    EXPECT_EQ(facts.launcher, Launcher::srun);
    EXPECT_EQ(facts.rank, 5);
    EXPECT_EQ(facts.size, 9);
    EXPECT_EQ(facts.local_rank, 1);
    EXPECT_EQ(facts.local_size, 4);
    EXPECT_EQ(facts.slurm_job_id, "77");
    EXPECT_EQ(facts.slurm_restart_count, 3);
}

TEST(LaunchFacts, FindTheTasksOfTheLastNode) {
    EXPECT_EQ(facts_of(with(srun, {{"SLURM_NODEID", "2"}})).local_size, 1);
    EXPECT_EQ(facts_of(with(srun, {{"SLURM_NODEID", "3"}})).local_size, std::nullopt);
    EXPECT_EQ(facts_of(with(srun, {{"SLURM_STEP_TASKS_PER_NODE", "4(x"}})).local_size,
              std::nullopt);
}

TEST(LaunchFacts, TakeMpirunInsideAnSrunStep) {
    const auto facts = facts_of(with(srun, mpirun));
    EXPECT_EQ(facts.launcher, Launcher::mpirun);
    EXPECT_EQ(facts.rank, 2);
    EXPECT_EQ(facts.slurm_step_tasks, 9);
}

TEST(LaunchFacts, DoNotTakeABatchScriptForAStep) {
    const auto facts =
        facts_of({{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});
    EXPECT_EQ(facts.launcher, Launcher::none);
    EXPECT_EQ(facts.slurm_job_id, "77");
    EXPECT_NO_THROW(check_launch(facts, 0, 1));
}

const Variables hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "9"}};

TEST(LaunchFacts, ReadTheNumbersOfMpichsMpiexec) {
    const auto facts = facts_of(hydra);
    EXPECT_EQ(facts.launcher, Launcher::pmi);
    EXPECT_EQ(facts.rank, 1);
    EXPECT_EQ(facts.size, 2);
    EXPECT_EQ(facts_of({{"PMI_RANK", "0"}}).launcher, Launcher::none) << "somebody exported it";
    EXPECT_EQ(facts_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).launcher, Launcher::none);
    EXPECT_EQ(facts_of(with(srun, {{"PMI_RANK", "5"}, {"PMI_SIZE", "9"}})).launcher, Launcher::srun)
        << "SLURM's own PMI-2";
    EXPECT_EQ(
        facts_of(with(hydra, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})).launcher,
        Launcher::pmi)
        << "srun started mpiexec's daemon";
}

TEST(LaunchFacts, RefuseTextInANumber) {
    EXPECT_EQ(caught_code([] { facts_of({{"OMPI_COMM_WORLD_SIZE", "two"}}); }), "E113");
}

TEST(CheckLaunch, AcceptsAgreement) {
    EXPECT_NO_THROW(check_launch(facts_of({}), 0, 1));
    EXPECT_NO_THROW(check_launch(facts_of(mpirun), 2, 4));
    EXPECT_NO_THROW(check_launch(facts_of(srun), 5, 9));
    EXPECT_NO_THROW(check_launch(
        facts_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), 0, 1));
}

TEST(CheckLaunch, NamesSingletonsUnderSrunWithoutPmix) {
    EXPECT_EQ(caught_text([] { check_launch(facts_of(srun), 0, 1); }),
              "lockstep: error E604: srun started 9 processes, but MPI sees rank 0 of 1 in each\n"
              "  why: srun offered no PMIx; found SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=9 "
              "SLURM_JOB_ID=77\n"
              "  fix: srun --mpi=pmix -n 9 lockstep train ...  (srun --mpi=list shows what this "
              "SLURM has), or mpirun; where no srun started this: unset ${!SLURM_*}");
}

TEST(CheckLaunch, AdvisesMpirunWherePmixIsThereButDoesNotFit) {
    const auto facts = facts_of(with(srun, {{"PMIX_RANK", "5"}}));
    const auto text = caught_text([&] { check_launch(facts, 0, 1); });
    EXPECT_THAT(text, has("do not speak the same version", "fix: mpirun -np 9"));
}

TEST(CheckLaunch, NamesAnotherMpisMpirun) {
    const auto text = caught_text([] { check_launch(facts_of(mpirun), 0, 1); });
    EXPECT_THAT(text, has("E604: mpirun started 4 processes, but MPI sees rank 0 of 1"));
    EXPECT_THAT(text, has("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4"));
    EXPECT_THAT(text, has("ldd", "where no mpirun started this: unset ${!OMPI_*} ${!PMIX_*}"));
}

TEST(CheckLaunch, NamesMpichsMpiexec) {
    const auto text = caught_text([] { check_launch(facts_of(hydra), 0, 1); });
    EXPECT_THAT(text, has("E604: mpiexec started 2 processes, but MPI sees rank 0 of 1"));
    EXPECT_THAT(text, has("found PMI_RANK=1 PMI_SIZE=2"));
    EXPECT_THAT(text, has("fix: lockstep train --np 2", "unset ${!PMI_*}"));
}

TEST(CheckAskedRanks, NamesBothNumbersUnlessTheyAgree) {
    EXPECT_NO_THROW(check_asked_ranks(facts_of(mpirun), 0, 4));
    EXPECT_NO_THROW(check_asked_ranks(facts_of(mpirun), 4, 4));
    const auto text = caught_text([] { check_asked_ranks(facts_of(mpirun), 2, 4); });
    EXPECT_THAT(text, has("E604: mpirun started 4 rank(s), but 2 are requested"));
    EXPECT_THAT(text, has("start it as: mpirun -np 2 lockstep"));
    EXPECT_THAT(text, has("unset ${!OMPI_COMM_WORLD_*} ${!PMIX_*}"));
    EXPECT_THAT(caught_text([] { check_asked_ranks(facts_of(srun), 2, 9); }),
                has("srun --overlap --mpi=pmix -n 2 lockstep"));
}

TEST(CheckAskedRanks, LeavesSingletonsToTheirOwnMessage) {
    EXPECT_NO_THROW(check_asked_ranks(facts_of(hydra), 2, 1));
}

TEST(CheckLaunch, SendsTorchrunsUsersToMpirun) {
    const auto text = caught_text([] { check_launch(facts_of(torchrun), 0, 1); });
    EXPECT_THAT(text, has("torchrun started 2 processes", "fix: mpirun -np 2 lockstep train"));
}

TEST(CheckLaunch, TellsStaleVariablesFromSingletons) {
    const auto text = caught_text([] { check_launch(facts_of(mpirun), 1, 2); });
    EXPECT_THAT(text, has("mpirun says rank 2 of 4, MPI says rank 1 of 2"));
    EXPECT_THAT(text, has("another launch", "unset ${!OMPI_*} ${!PMIX_*} ${!SLURM_*}"));
    EXPECT_THAT(text, Not(has("started 4 processes")));
}

TEST(CheckLaunch, FindsARankThatDiffers) {
    EXPECT_EQ(caught_code([] { check_launch(facts_of(mpirun), 1, 4); }), "E604");
}

TEST(CheckLaunch, FindsVariablesThatContradictEachOther) {
    const auto facts = facts_of(with(mpirun, {{"PMIX_RANK", "0"}}));
    EXPECT_THAT(caught_text([&] { check_launch(facts, 2, 4); }),
                has("mpirun says rank 2, PMIx says rank 0"));
}

TEST(CheckLaunch, DoesNotCountTasksOfHeterogeneousJobs) {
    const auto facts = facts_of(with(srun, {{"SLURM_HET_SIZE", "2"}}));
    EXPECT_NO_THROW(check_launch(facts, 12, 20));
}

}  // namespace
}  // namespace lockstep
