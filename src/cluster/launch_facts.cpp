// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"

#include "lockstep/core/numbers.hpp"

namespace lockstep {
namespace {

using Number = std::optional<std::int64_t>;

/// Returns the task count of node `node` in SLURM's "4(x2),1"; nothing if the text has another
/// form.
Number tasks_on_node(std::string_view text, std::int64_t node) {
    while (!text.empty()) {
        const auto comma = text.find(',');
        const auto item = text.substr(0, comma);
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
        text = comma == text.npos ? std::string_view{} : text.substr(comma + 1);
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

}  // namespace lockstep
