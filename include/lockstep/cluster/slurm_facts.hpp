// SPDX-License-Identifier: Apache-2.0
/// @file
/// The resources and rules of a SLURM cluster, read from the output of its commands.
#pragma once

#include "lockstep/core/error.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
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

/// Returns "gpu:h100:4(S:0-1),gpu:2" as counts by type.
std::map<std::string, std::int64_t> parse_gpus(const std::string& gres);

/// Returns SLURM's "D-HH:MM:SS", "HH:MM:SS", "MM:SS", "MM", "D-HH", "D-HH:MM" in seconds; nothing
/// for other texts.
std::optional<std::int64_t> parse_slurm_time(const std::string& text);

/// Returns "1-00:00:00", "00:10:00".
std::string slurm_time_text(std::int64_t seconds);

/// Returns the error of a failed SLURM command, from its output: E530 (munge) or E511.
Error slurm_failure(const std::string& command, const std::string& output);

}  // namespace lockstep
