// SPDX-License-Identifier: Apache-2.0
/// @file
/// The typed options of a SLURM job, and checks whether the cluster could ever start it.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/cluster/slurm_facts.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// One option of a \#SBATCH line, by its long name without dashes. A switch has no value.
struct SbatchOption {
    std::string name;
    std::optional<std::string> value;
};

/// Options in the order of the script.
using SbatchOptions = std::vector<SbatchOption>;

/// Returns the value of `name`, "" for a switch, nothing if it is missing.
std::optional<std::string> value_of(const SbatchOptions& options, std::string_view name);

/// Replaces or adds `name`.
void set_option(SbatchOptions& options, const std::string& name, std::optional<std::string> value);

/// Removes `name`, if it exists.
void remove_option(SbatchOptions& options, std::string_view name);

/// A batch script, split at its \#SBATCH lines.
struct JobTemplate {
    std::string name;                  ///< name for messages
    std::string head;                  ///< lines before the options, with #!
    std::vector<SbatchOptions> parts;  ///< one part; more for a heterogeneous job
    std::string body;                  ///< commands of the script
};

/// Splits `text`. Errors: E531 for Windows line ends, no #!, no \#SBATCH line, or a line that is no
/// list of options.
JobTemplate parse_template(const std::string& name, const std::string& text);

/// The content of a script besides its options. All texts may come from users.
struct ScriptSettings {
    std::vector<std::pair<std::string, std::string>>
        variables;                   ///< exported variables: name, value
    std::vector<std::string> words;  ///< the script's arguments; %a is an array's task number
};

/// Returns `text` as one word that bash reads back unchanged. Errors: E532 naming `what` if `text`
/// has control characters, which would hide lines from readers of the script.
std::string bash_word(const std::string& what, const std::string& text);

/// Returns true if a line of the body runs `lockstep train`: words after -- then belong to that
/// command.
bool trains(const JobTemplate& script);

/// Returns mpirun or srun; none if the script has no such run_ranks line.
Launcher launcher_of(const JobTemplate& script);

/// Returns the whole script. All texts of `settings` are quoted words for bash. Errors: E532.
std::string render_script(const JobTemplate& script, const ScriptSettings& settings);

/// Value of --time for a job without a limit: the longest time that SLURM can count.
inline constexpr std::int64_t endless_s = 60 * (std::int64_t{1} << 32);

/// One part of a job; only a heterogeneous job has several.
struct JobPart {
    std::vector<std::string> partitions;      ///< any of them is acceptable; empty: the default one
    std::optional<std::int64_t> least_nodes;  ///< nothing: as many as the tasks need
    std::optional<std::int64_t> most_nodes;   ///< equal to `least_nodes` if one number is given
    std::optional<std::int64_t> segment;      ///< nodes that must be in one block together
    std::optional<std::int64_t> tasks;        ///< tasks of the whole part
    std::optional<std::int64_t> node_tasks;   ///< tasks of each node
    std::int64_t task_cpus = 1;
    bool takes_whole_nodes = false;  ///< --exclusive
    std::int64_t node_gpus = 0;
    std::string gpu_type;                 ///< "": any
    std::int64_t node_memory_mb = 0;      ///< 0: the partition's default, or all
    std::optional<std::int64_t> seconds;  ///< nothing: the partition's default; or endless_s
    std::string constraint;               ///< "a&b", "a|b", ..., in SLURM's syntax
    std::vector<std::string> excluded;    ///< nodes that the job must not get
    std::vector<std::string> required;    ///< nodes that the job must get, all of them

    std::int64_t node_count() const {
        return least_nodes.value_or(1);
    }  ///< the smallest acceptable number

    /// Returns `node_tasks`, or the tasks divided by the nodes.
    std::int64_t ranks_per_node() const;
};

/// One job of --dependency, and the end that it must have.
struct AwaitedJob {
    std::string condition;  ///< "afterok", "afterany", ...
    std::string job;        ///< its number, without the task of an array
    bool operator==(const AwaitedJob&) const = default;
};

/// Options that are checked; all others go to SLURM unchanged.
struct JobRequest {
    std::string job_name, account, qos, reservation;
    std::optional<std::int64_t> last_task;         ///< the highest index of an array
    std::vector<AwaitedJob> awaited_jobs;          ///< jobs of --dependency
    bool awaits_any = false;                       ///< any of these suffices ("a?b")
    std::map<std::string, std::int64_t> licences;  ///< number of each licence
    std::vector<JobPart> parts;
};

/// Reads the options of a script, each by its type. Errors: E532 for characters that a script
/// cannot carry, E526 for a time, E103 for numbers and the rest.
JobRequest read_request(const std::vector<SbatchOptions>& parts);

/// Refuses requests that SLURM would accept and never start, and names the nearest request that it
/// could start. Errors: E523 partition, E524 nodes, E525 time, E527 GPUs, E528 memory, E533
/// account, E534 dependency, E535 closed partition, E536 CPUs, E538 array, E542 constraint, E543
/// names of nodes, E544 reservation, E545 QOS, E546 licences. Returns notes for the user.
std::vector<std::string> check_request(const JobRequest& request, const SlurmFacts& facts);

/// Returns a node of `group` as far as SLURM knows it, with the cores and GPUs that `part` asks
/// for. Sockets are numbered one after the other and each is a NUMA node; siblings are numbered as
/// Linux does; GPUs (gpu0, gpu1, ...) are spread evenly over the sockets. Caches, PCI addresses and
/// network ports are unknown.
NodeTopology planned_node(const NodeGroup& group, const JobPart& part);

/// Returns the ranks of all parts, on the first kind of nodes that holds each. Hosts are named
/// after their partition: "gpu:0", "gpu:1". `threads`: compute threads of each rank; 0: one per
/// core. Errors: those of plan_job(), if the nodes have too few cores or GPUs for the ranks.
Placement plan_job_map(const JobRequest& request, const SlurmFacts& facts, int threads);

/// Returns the plan for --dry-run, as comments of a script; if there is none, the reason.
std::string job_map_text(const JobRequest& request, const SlurmFacts& facts, int threads);

}  // namespace lockstep
