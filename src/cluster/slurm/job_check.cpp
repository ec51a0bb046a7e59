// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "slurm/misfit.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// "--option NEAREST", or the first one.
std::string offer(const char* option,
                  const std::string& wrong,
                  const std::vector<std::string>& names) {
    const std::string nearest = nearest_name(wrong, names);
    return fmt::format("{} {}", option, nearest.empty() ? names.front() : nearest);
}

void check_account(const JobRequest& request, const SlurmFacts& facts) {
    if (!facts.has_accounts) return;
    const bool is_mine =
        request.account.empty() || std::ranges::count(facts.accounts, request.account) > 0;
    check(is_mine && !facts.accounts.empty(), [&] {
        return Error(
            "E533",
            request.account.empty() ? "you have no account on this cluster"
                                    : fmt::format("account '{}' is not yours", request.account),
            facts.accounts.empty() ? "sacctmgr names none"
                                   : fmt::format("yours: {}", fmt::join(facts.accounts, ", ")),
            facts.accounts.empty() ? "ask the administrators for one"
                                   : offer("--account", request.account, facts.accounts));
    });
}

// If no accounts are kept, SLURM accepts any QOS.
void check_qos(const JobRequest& request, const SlurmFacts& facts) {
    if (!facts.has_accounts || request.qos.empty() || facts.qos.empty()) return;
    check(std::ranges::count(facts.qos, request.qos) > 0, [&] {
        return Error("E545",
                     fmt::format("QOS '{}' is not yours", request.qos),
                     fmt::format("yours: {}", fmt::join(facts.qos, ", ")),
                     offer("--qos", request.qos, facts.qos));
    });
}

// How a job that has ended can no longer be waited for.
bool never_holds(const AwaitedJob& awaited, const std::string& state) {
    constexpr const char* failures[] = {
        "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"};
    const bool has_failed = std::ranges::count(failures, state) > 0;
    if (awaited.condition == "afterok" || awaited.condition == "aftercorr") return has_failed;
    return awaited.condition == "afternotok" && state == "COMPLETED";
}

bool may_still_hold(const AwaitedJob& awaited, const SlurmFacts& facts) {
    const auto job = facts.jobs.find(awaited.job);
    return job != facts.jobs.end() && !never_holds(awaited, job->second);
}

void check_dependency(const JobRequest& request, const SlurmFacts& facts) {
    const bool one_will_do =
        request.awaits_any && std::ranges::any_of(request.awaited_jobs, [&](const auto& awaited) {
            return may_still_hold(awaited, facts);
        });
    if (one_will_do) return;
    for (const AwaitedJob& awaited : request.awaited_jobs) {
        const auto job = facts.jobs.find(awaited.job);
        check(job != facts.jobs.end(), [&] {
            return Error("E534",
                         fmt::format("SLURM does not know job {}", awaited.job),
                         "it never existed, or ended some time ago; SLURM would not wait, and "
                         "start the new job at once",
                         "squeue --me lists your jobs; drop --dependency if it has ended");
        });
        check(!never_holds(awaited, job->second), [&] {
            return Error(
                "E534",
                fmt::format("'{}' of job {} will never be met", awaited.condition, awaited.job),
                fmt::format("it has ended as {}; SLURM would let the new job wait for ever",
                            job->second),
                fmt::format("--dependency afterany:{}, or none", awaited.job));
        });
    }
}

void check_array(const JobRequest& request, const SlurmFacts& facts) {
    check(request.last_task.value_or(0) <= facts.most_array_index, [&] {
        return Error("E538",
                     fmt::format("the array has a task {}", *request.last_task),
                     fmt::format("this cluster numbers tasks up to {}", facts.most_array_index),
                     fmt::format("--array 0-{}", facts.most_array_index));
    });
}

void check_licences(const JobRequest& request, const SlurmFacts& facts) {
    for (const auto& [name, count] : request.licences) {
        const auto known = facts.licences.find(name);
        const std::int64_t all = known == facts.licences.end() ? 0 : known->second;
        check(count <= all, [&] {
            std::vector<std::string> offers;
            for (const auto& [other, number] : facts.licences)
                offers.push_back(fmt::format("{}:{}", other, number));
            return Error("E546",
                         fmt::format("{} of licence '{}' are requested", count, name),
                         offers.empty()
                             ? "this cluster has no licences"
                             : fmt::format("this cluster has {}", fmt::join(offers, ", ")),
                         all > 0 ? fmt::format("--licenses {}:{}", name, all) : "drop --licenses");
        });
    }
}

void check_reservation_names(const SlurmReservation& found,
                             const JobRequest& request,
                             const SlurmFacts& facts) {
    const bool names_none = found.users.empty() && found.accounts.empty();
    const bool is_mine =
        std::ranges::count(found.users, facts.user) > 0 ||
        std::ranges::any_of(found.accounts, [&](const std::string& account) {
            return account == request.account ||
                   (request.account.empty() && std::ranges::count(facts.accounts, account) > 0);
        });
    check(names_none || is_mine, [&] {
        return Error(
            "E544",
            fmt::format("reservation '{}' is not yours", found.name),
            fmt::format("it is for {}",
                        fmt::join(found.users.empty() ? found.accounts : found.users, ", ")),
            "drop --reservation");
    });
}

void check_reservation(const JobRequest& request,
                       const SlurmFacts& facts,
                       std::vector<std::string>& notes) {
    if (request.reservation.empty()) return;
    const auto found =
        std::ranges::find(facts.reservations, request.reservation, &SlurmReservation::name);
    std::vector<std::string> names;
    for (const SlurmReservation& each : facts.reservations) names.push_back(each.name);
    check(found != facts.reservations.end(), [&] {
        return Error("E544",
                     fmt::format("there is no reservation '{}'", request.reservation),
                     names.empty() ? "there are no reservations, or they have ended"
                                   : fmt::format("there are {}", fmt::join(names, ", ")),
                     names.empty() ? "drop --reservation"
                                   : offer("--reservation", request.reservation, names));
    });
    check_reservation_names(*found, request, facts);
    const std::int64_t asked = request.parts.front().node_count();
    check(asked <= found->nodes, [&] {
        return Error("E544",
                     fmt::format("{} nodes of reservation '{}' are requested", asked, found->name),
                     fmt::format("it has {}", found->nodes),
                     fmt::format("--nodes {}", found->nodes));
    });
    if (found->state == "INACTIVE")
        notes.push_back(fmt::format("the job waits for its reservation '{}', which begins at {}",
                                    found->name,
                                    found->start));
}

void check_known(const char* code,
                 const char* option,
                 const char* noun,
                 const std::vector<std::string>& asked,
                 const std::set<std::string>& known) {
    for (const std::string& name : asked)
        check(known.contains(name), [&] {
            const std::vector<std::string> names(known.begin(), known.end());
            const std::string nearest = nearest_name(name, names);
            return Error(code,
                         fmt::format("no node has the {} '{}' of --{}", noun, name, option),
                         names.empty() ? fmt::format("nodes of this cluster have no {}s", noun)
                         : names.size() > 20 ? fmt::format("there are {} others", names.size())
                                             : fmt::format("there are {}", fmt::join(names, ", ")),
                         nearest.empty() ? fmt::format("drop it from --{}", option)
                                         : fmt::format("write '{}'", nearest));
        });
}

void check_node_names(const JobPart& part, const SlurmFacts& facts) {
    std::set<std::string> features, names;
    for (const NodeGroup& group : facts.groups) {
        features.insert(group.features.begin(), group.features.end());
        names.insert(group.names.begin(), group.names.end());
    }
    check_known("E542", "constraint", "feature", feature_names_in(part.constraint), features);
    check_known("E543", "exclude", "name", part.excluded, names);
    check_known("E543", "nodelist", "name", part.required, names);
    for (const std::string& name : part.required)
        check(std::ranges::count(part.excluded, name) == 0, [&] {
            return Error("E543",
                         fmt::format("node '{}' is in --nodelist and in --exclude", name),
                         "a job cannot both use and avoid it",
                         "drop it from one of them");
        });
}

// SLURM places a segment within one block of nodes, such as those of one NVLink switch. The rules
// are those of sbatch's manual page in 26.05, the version that of CHANGELOG/slurm-24.05.md.
void check_segment(const JobPart& part, const SlurmFacts& facts, std::vector<std::string>& notes) {
    if (!part.segment) return;
    const std::int64_t segment = *part.segment, nodes = part.node_count();
    check(facts.version == 0 || facts.version >= 240500, [&] {
        return Error("E540",
                     "this SLURM has no --segment",
                     fmt::format("it is {}.{:02}, and 24.05 is the first that has it",
                                 facts.version / 10000,
                                 facts.version / 100 % 100),
                     "drop --segment");
    });
    check(nodes <= segment || nodes % segment == 0, [&] {
        return Error("E524",
                     fmt::format("{} nodes do not divide into segments of {}", nodes, segment),
                     "SLURM takes a whole number of segments, or less than one",
                     fmt::format("--nodes {}, or another --segment", nodes - nodes % segment));
    });
    const bool has_blocks = facts.topology.empty() || facts.topology.ends_with("/block") ||
                            facts.topology.ends_with("/ring") ||
                            facts.topology.ends_with("/torus3d");
    if (!has_blocks)
        notes.push_back(fmt::format("--segment has no effect: the topology of this cluster is '{}'",
                                    facts.topology));
}

/// Errors: E533, E534, E538, E542 to E546. Adds to `notes` what the user should know.
void check_site_rules(const JobRequest& request,
                      const SlurmFacts& facts,
                      std::vector<std::string>& notes) {
    check_account(request, facts);
    check_qos(request, facts);
    check_array(request, facts);
    check_dependency(request, facts);
    check_licences(request, facts);
    check_reservation(request, facts, notes);
    for (const JobPart& part : request.parts) {
        check_node_names(part, facts);
        check_segment(part, facts, notes);
    }
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
    return Error("E523",
                 fmt::format("there is no partition '{}'", name),
                 fmt::format("there are {}", fmt::join(shown, ", ")),
                 offer("--partition", name, names));
}

std::vector<const SlurmPartition*> partitions_of(const JobPart& part, const SlurmFacts& facts) {
    std::vector<const SlurmPartition*> found;
    for (const std::string& name : part.partitions) {
        const auto known = std::ranges::find(facts.partitions, name, &SlurmPartition::name);
        check(known != facts.partitions.end(), [&] { return unknown_partition(facts, name); });
        found.push_back(&*known);
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
                            const JobRequest& request) {
    for (const SlurmPartition& partition : facts.partitions)
        if (misfits(part, partition, facts, request).empty()) return partition.name;
    return "";
}

[[noreturn]] void refuse(const JobPart& part,
                         const SlurmFacts& facts,
                         const JobRequest& request,
                         const std::vector<Misfit>& found) {
    std::vector<std::string> whys, fixes;
    for (const Misfit& misfit : found) {
        whys.push_back(misfit.why);
        if (!misfit.fix.empty()) fixes.push_back(misfit.fix);
    }
    const std::string other = other_partition(part, facts, request);
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
                const JobRequest& request,
                std::vector<std::string>& notes) {
    std::vector<Misfit> least;
    bool fits = false;
    for (const SlurmPartition* partition : partitions_of(part, facts)) {
        auto found = misfits(part, *partition, facts, request);
        if (found.empty()) {
            note_nodes_away(part, facts, *partition, notes);
            fits = true;
        } else {
            notes.push_back(
                fmt::format("'{}' will not take the job: {}", partition->name, found[0].why));
            if (least.empty() || found.size() < least.size()) least = std::move(found);
        }
    }
    if (!fits) refuse(part, facts, request, least);
}

}  // namespace

std::vector<std::string> check_request(const JobRequest& request, const SlurmFacts& facts) {
    std::vector<std::string> notes;
    check_site_rules(request, facts, notes);
    for (const JobPart& part : request.parts) {
        JobPart whole = part;  // the first part's time is everybody's
        if (!whole.seconds) whole.seconds = request.parts.front().seconds;
        check_part(whole, facts, request, notes);
    }
    return notes;
}

}  // namespace lockstep
