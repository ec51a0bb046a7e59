// SPDX-License-Identifier: Apache-2.0
/// @file
/// The typed options of a SLURM job, the resources and rules of its cluster as the output of its
/// commands tells them, and checks whether the cluster could ever start it.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/error.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// A partition's rules, from `scontrol show partition --oneliner`. Nothing: no limit.
struct SlurmPartition {
    std::string name;
    bool is_default = false;
    std::string state;  ///< "UP", "DOWN", "DRAIN", "INACTIVE"
    std::int64_t total_nodes = 0, least_nodes = 0;
    std::optional<std::int64_t> most_nodes, most_seconds;
    std::optional<std::int64_t> most_memory_mb;  ///< memory of a node
    std::optional<std::int64_t> most_node_cpus;
    std::vector<std::string> accounts;         ///< the only accounts that may use it; empty: all
    std::vector<std::string> denied_accounts;  ///< accounts that may not use it
    std::vector<std::string> qos;              ///< the only QOS allowed in it; empty: all
    std::vector<std::string> denied_qos;
};

/// Equal nodes of one partition, from `sinfo -h -o NODE_GROUP_FORMAT`.
struct NodeGroup {
    std::string partition;
    std::string state;  ///< "idle", "mixed", "allocated", "down*", ...
    std::int64_t nodes = 0;
    std::int64_t cpus = 0;                     ///< CPUs of each node
    std::int64_t memory_mb = 0;                ///< memory of each node
    std::map<std::string, std::int64_t> gpus;  ///< GPUs of each node, by type; "" without a type
    std::int64_t sockets = 1;                  ///< sockets of each node
    std::int64_t socket_cores = 0;             ///< cores of each socket
    std::int64_t core_threads = 1;             ///< hardware threads of each core
    std::vector<std::string> features;         ///< for --constraint
    std::vector<std::string> names;            ///< names of the nodes

    bool is_usable() const;                               ///< usable now, or when its jobs end
    std::int64_t gpus_of(const std::string& type) const;  ///< "": of all types together
};

/// The format of sinfo that parse_node_groups() reads.
inline constexpr const char* node_group_format = "%R|%T|%D|%c|%m|%G|%z|%f|%N";

/// Nodes kept for some users, from `scontrol show reservation --oneliner`.
struct SlurmReservation {
    std::string name, state;  ///< "ACTIVE"; "INACTIVE": it has not begun
    std::string start;        ///< time as SLURM writes it
    std::int64_t nodes = 0;
    std::vector<std::string> users,
        accounts;  ///< those that may use it; both empty: no limit is named
};

/// All facts that a request is checked against.
struct SlurmFacts {
    std::vector<SlurmPartition> partitions;
    std::vector<NodeGroup> groups;
    int version = 0;       ///< as version_number() reads it; 0: it is unknown
    std::string topology;  ///< its plug-in, such as "topology/block"
    std::int64_t most_array_index = 1000;
    bool has_accounts = false;                   ///< the cluster keeps accounts (slurmdbd)
    std::string user;                            ///< user who submits
    std::vector<std::string> accounts;           ///< the user's accounts, if the cluster keeps them
    std::vector<std::string> qos;                ///< QOS that one of these accounts may use
    std::vector<std::string> mpi_types;          ///< types of srun; empty: not queried
    std::map<std::string, std::string> jobs;     ///< state of a dependency's jobs that SLURM knows
    std::vector<SlurmReservation> reservations;  ///< queried only if one is requested
    std::map<std::string, std::int64_t>
        licences;  ///< total of each; queried only if one is requested
};

/// Parses the output of scontrol. Errors: E511 for other text.
std::vector<SlurmPartition> parse_partitions(const std::string& text);

/// Parses the output of sinfo by node_group_format. Errors: E511.
std::vector<NodeGroup> parse_node_groups(const std::string& text);

/// Parses the output of scontrol. Errors: E511.
std::vector<SlurmReservation> parse_reservations(const std::string& text);

/// Parses the total of each licence from `scontrol show license --oneliner`.
std::map<std::string, std::int64_t> parse_licences(const std::string& text);

/// A user's rows of `sacctmgr -n -P show associations format=account,qos`, each name once.
struct SlurmAssociations {
    std::vector<std::string> accounts, qos;
};

/// Parses the output of sacctmgr. Errors: E511.
SlurmAssociations parse_associations(const std::string& text);

/// Returns the names of "node[01-03,7],head"; nothing if it is no list of hosts, or one of more
/// than 65536.
std::optional<std::vector<std::string>> expand_hosts(const std::string& text);

/// Parses the "Name = value" lines of `scontrol show config`.
std::map<std::string, std::string> parse_slurm_config(const std::string& text);

/// Parses the names that `srun --mpi=list` offers.
std::vector<std::string> parse_mpi_types(const std::string& text);

/// Returns SLURM's "D-HH:MM:SS", "HH:MM:SS", "MM:SS", "MM", "D-HH", "D-HH:MM" in seconds; nothing
/// for other texts.
std::optional<std::int64_t> parse_slurm_time(const std::string& text);

/// Returns "1-00:00:00", "00:10:00".
std::string slurm_time_text(std::int64_t seconds);

/// Returns the error of a failed SLURM command, from its output: E530 (munge) or E511.
Error slurm_failure(const std::string& command, const std::string& output);

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
