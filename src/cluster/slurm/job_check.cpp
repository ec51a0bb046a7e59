// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "slurm/misfit.hpp"
#include "slurm/site_rules.hpp"

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
