// SPDX-License-Identifier: Apache-2.0
// What `lockstep submit` is told: SLURM's own options as texts, and ours; the batch script that it
// makes from them, from what a site calls its partitions and how it starts ranks
// (slurm/sites/NAME.toml), and from a template; and what the ranks of that job would find and
// refuse, and how much memory and disk it will need, as far as that can be seen from here.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/cluster/launch_facts.hpp"

#include "command.hpp"

#include <cstdint>

namespace lockstep {

/// How ranks get into a container.
enum class ContainerRuntime { none, apptainer, pyxis };

/// The values of --help's table. SLURM's options stay texts: the batch script's own are checked
/// with them, by the same rules.
struct SubmitOptions {
    std::vector<std::string> slurm_values;  ///< in the order of the table
    std::string het_partition, het_nodes, het_node_tasks;
    std::string template_name, site, image;
    Launcher launcher = Launcher::none;                 ///< none: the site's or the template's
    ContainerRuntime runtime = ContainerRuntime::none;  ///< none: the site's, or apptainer
    std::filesystem::path data, run;
    std::int64_t chain = 1;
    std::uint64_t parameters = 0;  ///< parameters of the model; 0: known from its name
    bool exclusive = false, dry_run = false;
};

/// Returns the table that fills `options`, which must outlive it.
OptionTable submit_option_table(SubmitOptions& options);

/// All facts of a submission before SLURM is asked.
struct SubmitPlan {
    JobTemplate script;                  ///< with all options in place
    ScriptSettings settings{};           ///< the script's settings besides options
    JobRequest request{};                ///< the options by type
    Launcher launcher = Launcher::none;  ///< none: the template starts no ranks
};

/// Plans everything that needs no data of SLURM. `call` tells which options were given. Errors:
/// E539 no such template, site or image; those of parse_template(), read_config() and
/// read_request(); E111, E112 for keys and types of a site's file; E106 options that exclude each
/// other; E537 launchers.
SubmitPlan plan_submit(const SubmitOptions& options, const Invocation& call, const fs::path& root);

/// `settings`: those of train. Things that this node lacks but other nodes may have are no error.
/// Errors: E201 data; E404, E407 and those of folders for the run; E528 memory below the estimate;
/// E548 GPUs; E640 more ranks than virtual ranks; E306 if settings.origins names another value than
/// the run has.
void check_ranks_will_run(const SubmitOptions& options,
                          const JobRequest& request,
                          const TrainSettings& settings);

/// Warns of a folder of the job's output that is missing here. Errors: E201 if one above it is not.
void check_output_folders(const JobTemplate& script);

/// What is estimated, in bytes.
struct JobEstimate {
    std::uint64_t parameters = 0;  ///< 0: not known
    std::uint64_t node_memory_bytes = 0;
    std::uint64_t copy_bytes = 0;  ///< of a node, for saves beside the steps; a job runs without
    std::uint64_t checkpoint_bytes = 0;  ///< of one
    std::uint64_t disk_bytes = 0;        ///< at most at a time
    std::uint64_t data_bytes = 0;        ///< decoded; 0: not known
};

/// `parameters`: 0 for built-in models, whose number is known from the data's shape. The data set
/// is settings.data, if it can be seen from here.
JobEstimate estimate_job(const TrainSettings& settings,
                         const JobPart& part,
                         std::uint64_t parameters);

/// Lines for --dry-run, as comments of a script.
std::string estimate_text(const JobEstimate& estimate, const TrainSettings& settings);

}  // namespace lockstep
