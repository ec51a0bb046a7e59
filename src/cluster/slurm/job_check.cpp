// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "slurm/misfit.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

const SlurmPartition* find_partition(const SlurmFacts& facts, const std::string& name) {
    const auto found = std::ranges::find(facts.partitions, name, &SlurmPartition::name);
    return found == facts.partitions.end() ? nullptr : &*found;
}

std::int64_t idle_nodes(const SlurmFacts& facts, const std::string& name) {
    std::int64_t idle = 0;
    for (const NodeGroup& group : facts.groups)
        if (group.partition == name && group.state == "idle") idle += group.nodes;
    return idle;
}

Error unknown_partition(const SlurmFacts& facts, const std::string& name) {
    std::vector<std::string> names, shown;
    for (const SlurmPartition& partition : facts.partitions) {
        names.push_back(partition.name);
        shown.push_back(fmt::format("{} ({} of {} nodes idle)",
                                    partition.name,
                                    idle_nodes(facts, partition.name),
                                    partition.total_nodes));
    }
    const std::string nearest = nearest_name(name, names);
    return Error("E523",
                 fmt::format("there is no partition '{}'", name),
                 fmt::format("there are {}", fmt::join(shown, ", ")),
                 fmt::format("--partition {}", nearest.empty() ? names.front() : nearest));
}

std::vector<const SlurmPartition*> partitions_of(const JobPart& part, const SlurmFacts& facts) {
    std::vector<const SlurmPartition*> found;
    for (const std::string& name : part.partitions) {
        found.push_back(find_partition(facts, name));
        check(found.back() != nullptr, [&] { return unknown_partition(facts, name); });
    }
    if (!found.empty()) return found;
    for (const SlurmPartition& partition : facts.partitions)
        if (partition.is_default) found.push_back(&partition);
    check(!found.empty(), [&] {
        return Error("E523",
                     "no partition is given, and this cluster has no default one",
                     "",
                     fmt::format("--partition {}",
                                 facts.partitions.empty() ? "NAME" : facts.partitions[0].name));
    });
    return found;
}

// Another partition that could start this part as it is, or "".
std::string other_partition(const JobPart& part,
                            const SlurmFacts& facts,
                            const std::string& account) {
    for (const SlurmPartition& partition : facts.partitions)
        if (misfits(part, partition, facts, account).empty()) return partition.name;
    return "";
}

[[noreturn]] void refuse(const JobPart& part,
                         const SlurmFacts& facts,
                         const std::string& account,
                         const std::vector<Misfit>& found) {
    std::vector<std::string> whys, fixes;
    for (const Misfit& misfit : found) {
        whys.push_back(misfit.why);
        if (!misfit.fix.empty()) fixes.push_back(misfit.fix);
    }
    const std::string other = other_partition(part, facts, account);
    if (!other.empty() && !fixes.empty()) fixes.push_back("or");
    if (!other.empty()) fixes.push_back("--partition " + other);
    throw Error(found[0].code,
                found[0].what,
                fmt::format("{}; SLURM would let the job wait for ever", fmt::join(whys, "; ")),
                fmt::format("{}", fmt::join(fixes, " ")));
}

// Some node counts are only short for now.
void note_nodes_away(const JobPart& part,
                     const SlurmFacts& facts,
                     const SlurmPartition& partition,
                     std::vector<std::string>& notes) {
    std::int64_t usable = 0;
    for (const NodeGroup& group : facts.groups)
        if (group.partition == partition.name && group.is_usable()) usable += group.nodes;
    if (usable < part.node_count())
        notes.push_back(fmt::format(
            "{} of the {} nodes of '{}' are down or drained: the job waits until {} are back",
            partition.total_nodes - usable,
            partition.total_nodes,
            partition.name,
            part.node_count() - usable));
}

// Any of the part's partitions will do.
void check_part(const JobPart& part,
                const SlurmFacts& facts,
                const std::string& account,
                std::vector<std::string>& notes) {
    std::vector<Misfit> least;
    bool fits = false;
    for (const SlurmPartition* partition : partitions_of(part, facts)) {
        auto found = misfits(part, *partition, facts, account);
        if (found.empty()) {
            note_nodes_away(part, facts, *partition, notes);
            fits = true;
        } else {
            notes.push_back(
                fmt::format("'{}' will not take the job: {}", partition->name, found[0].why));
            if (least.empty() || found.size() < least.size()) least = std::move(found);
        }
    }
    if (!fits) refuse(part, facts, account, least);
}

void check_account(const JobRequest& request, const SlurmFacts& facts) {
    if (!facts.has_accounts) return;
    const bool is_mine =
        request.account.empty() || std::ranges::count(facts.accounts, request.account) > 0;
    check(is_mine && !facts.accounts.empty(), [&] {
        const std::string nearest = nearest_name(request.account, facts.accounts);
        return Error(
            "E533",
            request.account.empty() ? "you have no account on this cluster"
                                    : fmt::format("account '{}' is not yours", request.account),
            facts.accounts.empty() ? "sacctmgr names none"
                                   : fmt::format("yours: {}", fmt::join(facts.accounts, ", ")),
            facts.accounts.empty()
                ? "ask the administrators for one"
                : fmt::format("--account {}", nearest.empty() ? facts.accounts.front() : nearest));
    });
}

void check_dependency(const JobRequest& request, const SlurmFacts& facts) {
    for (const std::string& job : request.awaited_jobs)
        check(std::ranges::count(facts.jobs, job) > 0, [&] {
            return Error("E534",
                         fmt::format("SLURM does not know job {}", job),
                         "it never was, or ended some time ago; the new job would wait for ever",
                         "squeue --me lists your jobs; drop --dependency if it has ended");
        });
}

void check_array(const JobRequest& request, const SlurmFacts& facts) {
    check(request.last_task.value_or(0) <= facts.most_array_index, [&] {
        return Error("E538",
                     fmt::format("the array has a task {}", *request.last_task),
                     fmt::format("this cluster numbers tasks up to {}", facts.most_array_index),
                     fmt::format("--array 0-{}", facts.most_array_index));
    });
}

}  // namespace

std::vector<std::string> check_request(const JobRequest& request, const SlurmFacts& facts) {
    std::vector<std::string> notes;
    check_account(request, facts);
    check_array(request, facts);
    check_dependency(request, facts);
    for (const JobPart& part : request.parts) {
        JobPart whole = part;  // the first part's time is everybody's
        if (!whole.seconds) whole.seconds = request.parts.front().seconds;
        check_part(whole, facts, request.account, notes);
    }
    return notes;
}

}  // namespace lockstep
