// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/known_faults.hpp"
#include "lockstep/core/numbers.hpp"

#include "doctor/families.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::uint64_t small_shared_bytes = 256u << 20;  // Docker's default is 64 MiB
constexpr std::size_t longest_tmp = 60;  // PMIx adds up to 47 of a socket name's 107 characters
constexpr std::uint64_t few_inodes = 1000;
constexpr std::uint64_t little_space = 1u << 30;
constexpr double short_time_s = 300;

constexpr std::array network_file_systems{
    "nfs", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb2", "fuse", "afs"};

/// File systems that other nodes do not see.
constexpr std::array own_file_systems{"ext4", "xfs", "btrfs", "tmpfs", "overlay"};

/// How /dev/shm gets `more_bytes` of free room: it can only grow to what the node has of memory.
std::string larger_shared_memory(const DoctorFacts& facts, std::uint64_t more_bytes) {
    constexpr std::uint64_t gib = std::uint64_t{1} << 30;
    const std::uint64_t free = *facts.shared_memory.free_bytes;
    const std::uint64_t used = facts.shared_memory.total_bytes.value_or(free) - free;
    const std::uint64_t size = (used + more_bytes + gib - 1) / gib;
    const std::uint64_t memory = facts.node.usable_memory_bytes();
    if (memory > 0 && size * gib > memory)
        return fmt::format(
            "start fewer ranks on each node, or take nodes with more memory: "
            "/dev/shm is memory, and this node has {}",
            bytes_text(memory));
    return fmt::format(
        "as root: mount -o remount,size={0}g /dev/shm; in Docker: --shm-size={0}g; "
        "Apptainer shares the host's",
        size);
}

Ailments small_shared_memory(const DoctorFacts& facts) {
    const auto& free = facts.shared_memory.free_bytes;
    if (!free) return {};
    if (facts.plan.shared_bytes > *free)
        return {{.what = fmt::format("/dev/shm has {} free, this run needs {}",
                                     bytes_text(*free),
                                     bytes_text(facts.plan.shared_bytes)),
                 .fix = larger_shared_memory(facts, facts.plan.shared_bytes),
                 .severity = Severity::error}};
    if (*free < small_shared_bytes)
        return {{.what = fmt::format("/dev/shm has only {} free of {}",
                                     bytes_text(*free),
                                     bytes_text(facts.shared_memory.total_bytes.value_or(*free))),
                 .fix = larger_shared_memory(facts, little_space)}};
    if (facts.system.stale_shared_files.empty() || facts.local_rank != 0) return {};
    return {{.what = fmt::format("/dev/shm holds {} file(s) of processes that are gone: {}",
                                 facts.system.stale_shared_files.size(),
                                 fmt::join(facts.system.stale_shared_files, " ")),
             .why = "They use memory until somebody removes them.",
             .fix = "rm them below /dev/shm"}};
}

Ailments removed_ipc(const DoctorFacts& facts) {
    if (!facts.system.removes_ipc || facts.system.user < 1000) return {};
    return {{"RemoveIPC=yes is written in logind.conf"}};
}

Ailments few_files(JobRanks ranks) {
    const auto nodes = nodes_of(ranks).size();
    Ailments found;
    for (const DoctorFacts& facts : ranks) {
        const bool has_many = nodes > 1 || facts.plan.uses_gpus;
        const std::uint64_t needed = (has_many ? 4096u : 512u) + 64u * ranks.size();
        const auto& limit = facts.node.limits.open_files;
        if (limit && *limit < needed)
            found.push_back(
                {.what = fmt::format("{} open files are allowed, {} may be needed, and one or two "
                                     "for each file of data",
                                     *limit,
                                     needed),
                 .ranks = {facts.rank}});
    }
    return found;
}

Ailments unlimited_stack(const DoctorFacts& facts) {
    const int nccl = version_number(facts.program.nccl_version);
    if (facts.node.limits.stack_bytes || nccl == 0 || nccl >= 22800) return {};
    return {{fmt::format("the stack is unlimited, and NCCL is {}", facts.program.nccl_version)}};
}

Ailments no_single_copy(const RanksOfNode& ranks) {
    const KernelFacts& kernel = ranks.front()->node.kernel;
    if (ranks.size() < 2 || kernel.ptrace_scope < 1) return {};
    return {{fmt::format("kernel.yama.ptrace_scope is {}", kernel.ptrace_scope)}};
}

Ailments bad_temporary_folder(const DoctorFacts& facts) {
    const FolderFacts& folder = facts.temporary_folder;
    if (folder.path.empty()) return {};
    if (!folder.exists || !folder.is_writable)
        return {{.what = fmt::format("TMPDIR is '{}', which {}",
                                     folder.path,
                                     folder.exists ? "cannot be written to" : "does not exist")}};
    if (folder.path.size() > longest_tmp)
        return {
            {.what = fmt::format("TMPDIR has {} characters: '{}'", folder.path.size(), folder.path),
             .why = "PMIx puts sockets there, whose names may have 107 characters at most."}};
    if (std::ranges::count(network_file_systems, folder.file_system) == 0) return {};
    return {{fmt::format("TMPDIR is on {}: '{}'", folder.file_system, folder.path)}};
}

/// "rank 0 (n1), rank 2 (n2)"
std::string places_text(const RanksOfNode& ranks) {
    std::vector<std::string> places;
    for (const auto* facts : ranks)
        places.push_back(fmt::format("rank {} ({})", facts->rank, facts->node.host));
    return fmt::format("{}", fmt::join(places, ", "));
}

bool is_on_own_disk(const DoctorFacts* facts) {
    return std::ranges::count(own_file_systems, facts->run_folder.file_system) > 0;
}

Ailments unshared_run_folder(const RanksOfNode& first_ranks) {
    RanksByValue seen;
    RanksOfNode with, without;
    for (const auto* facts : first_ranks) {
        const FolderFacts& folder = facts->run_folder;
        seen[fmt::format("inode {} of {}", folder.inode, folder.file_system)].push_back(
            facts->rank);
        (folder.exists ? with : without).push_back(facts);
    }
    if (!with.empty() && !without.empty())
        return {{.what = fmt::format("'{}' is there for {}, and not for {}",
                                     first_ranks.front()->run_folder.path,
                                     places_text(with),
                                     places_text(without)),
                 .severity = Severity::error}};
    if (seen.size() < 2) return {};
    if (with.empty()) {
        // Some network file systems have other inodes on each node.
        if (!std::ranges::all_of(without, is_on_own_disk)) return {};
        return {{.what = fmt::format("'{}' would be made on one node alone: the folder above it is "
                                     "not the same on all nodes: {}",
                                     first_ranks.front()->run_folder.path,
                                     values_text(seen)),
                 .severity = Severity::error}};
    }
    return {{.what = fmt::format("the run's folder '{}' is not the same on all nodes: {}",
                                 first_ranks.front()->run_folder.path,
                                 values_text(seen)),
             .severity = Severity::error}};
}

Ailments bad_run_folder(JobRanks ranks) {
    if (ranks.front().run_folder.path.empty()) return {};
    const RanksOfNode first_ranks = first_of_nodes(ranks);
    Ailments found = unshared_run_folder(first_ranks);
    for (const auto* facts : first_ranks) {
        const FolderFacts& folder = facts->run_folder;
        const auto say = [&](const char* fault) {
            found.push_back({.what = fmt::format("'{}' {}", folder.path, fault),
                             .why = "A run is a folder to which logs and checkpoints are written.",
                             .fix = folder.holds_run
                                        ? "let this user write there again, or move the run's "
                                          "folder (mv): lockstep train --resume NEW"
                                        : "name a folder that you may write to: --run runs/NAME",
                             .severity = Severity::error,
                             .ranks = {facts->rank}});
        };
        const auto say_left = [&](const std::string& left) {
            found.push_back({.what = fmt::format("'{}' has {} left", folder.path, left),
                             .why = "Logs and checkpoints go there.",
                             .fix = "give --run on another file system, or make room",
                             .ranks = {facts->rank}});
        };
        const bool makes_it = facts->rank == 0;
        if (folder.is_file)
            say("is a file, or lies below one");
        else if (folder.exists && !folder.is_writable)
            say("cannot be written to");
        else if (makes_it && !folder.is_writable)
            say("cannot be made");
        if (folder.free_inodes.value_or(few_inodes) < few_inodes)
            say_left(fmt::format("{} inodes", *folder.free_inodes));
        if (folder.free_bytes.value_or(little_space) < little_space)
            say_left(bytes_text(*folder.free_bytes));
        if (folder.file_system == "tmpfs")
            found.push_back({.what = fmt::format("'{}' is in memory (tmpfs)", folder.path),
                             .why = "The run is lost when this node restarts.",
                             .fix = "give --run on a disk or a shared file system",
                             .ranks = {facts->rank}});
    }
    return found;
}

Ailments little_memory(const RanksOfNode& ranks) {
    std::uint64_t needed = 0;
    for (const auto* facts : ranks) needed += facts->plan.memory_bytes;
    const DoctorFacts& first = *ranks.front();
    const auto limit = first.node.control_group.memory_limit_bytes;
    std::uint64_t memory = first.node.memory_bytes;
    if (limit && (memory == 0 || *limit < memory)) memory = *limit;
    if (memory > 0 && needed > memory)
        return {{.what = fmt::format("{} rank(s) plan {} of memory, the {} has {}",
                                     ranks.size(),
                                     bytes_text(needed),
                                     limit == memory ? "control group" : "node",
                                     bytes_text(memory)),
                 .severity = Severity::error}};
    if (first.system.overcommit != 2) return {};
    return {{.what = "vm.overcommit_memory is 2: memory is refused before it is used up",
             .why = "Reserved but unused memory counts too.",
             .fix = "plan half of the memory"}};
}

Ailments short_of_time(JobRanks ranks) {
    const auto end = whole_variable(ranks.front(), "SLURM_JOB_END_TIME");
    if (!end) return {};
    const double left_s = static_cast<double>(*end) - ranks.front().now_s;
    const double planned_s = ranks.front().plan.duration_s;
    if (left_s >= planned_s && left_s >= short_time_s) return {};
    const std::string left = duration_text(std::max(left_s, 0.0));
    if (planned_s > left_s)
        return {{fmt::format("{} are left, the run may take {}", left, duration_text(planned_s))}};
    return {{fmt::format("only {} are left", left)}};
}

const std::array limit_table{
    DoctorCheck{"L1",
                "little shared memory",
                "Ranks of a node share gradients in /dev/shm; when it is full they die with a bus "
                "error.",
                "make /dev/shm larger, or start fewer ranks on each node",
                small_shared_memory},
    DoctorCheck{
        "L2",
        "logging out removes shared memory",
        "When the user's last session on the node ends, systemd deletes the job's segments.",
        "RemoveIPC=no in /etc/systemd/logind.conf",
        removed_ipc},
    DoctorCheck{"L3",
                "few open files",
                "Connections, shards and logs are open files.",
                "ulimit -n 65536 (root or the site raises a hard limit), or make few files of the "
                "data: lockstep data pack",
                few_files},
    DoctorCheck{"L4",
                "unlimited stack with an old NCCL",
                "Threads then get stacks of 2 MiB, which NCCL before 2.28 can overrun.",
                "ulimit -s 8192",
                unlimited_stack},
    DoctorCheck{"L5",
                "MPI copies twice inside a node",
                "Processes may not read each other's memory; Open MPI then goes through a buffer.",
                "sysctl kernel.yama.ptrace_scope=0, if the site allows it",
                no_single_copy,
                Severity::info},
    DoctorCheck{"L6",
                "TMPDIR is not fit",
                "MPI keeps its session files there; on a shared disk nodes disturb each other.",
                "export TMPDIR=/tmp",
                bad_temporary_folder},
    DoctorCheck{"L7",
                "the run's folder cannot be used",
                "All ranks write logs and checkpoints into one folder that all nodes must see.",
                "give --run on a file system that all nodes share",
                bad_run_folder},
    DoctorCheck{"L8",
                "too little memory",
                "The kernel would kill a rank in the middle of the run.",
                "sbatch --mem=..., fewer ranks on a node, or a smaller --data-memory",
                little_memory},
    DoctorCheck{"L9",
                "the job's time is short",
                "The run ends at the limit; it resumes from its newest checkpoint.",
                "sbatch --time=..., or --signal=B:USR1@120 and requeue (slurm/README.md)",
                short_of_time},
};

}  // namespace

std::span<const DoctorCheck> limit_checks() {
    return limit_table;
}

}  // namespace lockstep
