// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/map.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_shown = 8;

template <class Value>
void compare(int rank,
             const char* noun,
             const Value& planned,
             const Value& found,
             std::vector<std::string>& lines) {
    if (planned != found)
        lines.push_back(
            fmt::format("rank {}: {} {} is planned, {} is found", rank, noun, planned, found));
}

std::string or_none(const std::string& text) {
    return text.empty() ? "none" : text;
}

/// Where nobody knew names: each host of the plan is one host of reality, and the other way round.
class HostNames {
  public:
    bool agree(const std::string& planned, const std::string& found) {
        return found_of_.emplace(planned, found).first->second == found &&
               planned_of_.emplace(found, planned).first->second == planned;
    }

  private:
    std::map<std::string, std::string> found_of_, planned_of_;
};

/// A rank may use fewer cores than the plan gives it, but no others.
void compare_cores(const RankSeat& planned,
                   const RankSeat& found,
                   std::vector<std::string>& lines) {
    if (planned.cpus.empty() || std::ranges::includes(planned.cpus, found.cpus)) return;
    lines.push_back(fmt::format("rank {}: cores {} are planned, {} are found",
                                planned.rank,
                                cpu_list_text(planned.cpus),
                                cpu_list_text(found.cpus)));
}

void compare_gpus(const RankSeat& planned, const RankSeat& found, std::vector<std::string>& lines) {
    compare(planned.rank, "GPU", or_none(planned.gpu), or_none(found.gpu), lines);
    const bool has_uuids = !planned.gpu_uuid.empty() && !found.gpu_uuid.empty();
    if (has_uuids && planned.gpu == found.gpu)
        compare(planned.rank, "GPU", planned.gpu_uuid, found.gpu_uuid, lines);
}

}  // namespace

std::vector<std::string> differences(const Placement& plan, std::span<const RankSeat> reality) {
    std::vector<std::string> lines;
    if (plan.seats.size() != reality.size()) {
        lines.push_back(
            fmt::format("{} ranks are planned, {} are found", plan.seats.size(), reality.size()));
        return lines;
    }
    HostNames names;
    for (std::size_t i = 0; i < reality.size(); ++i) {
        const auto& planned = plan.seats[i];
        const auto& found = reality[i];
        if (plan.names_hosts)
            compare(planned.rank, "host", planned.host, found.host, lines);
        else if (!names.agree(planned.host, found.host_id))
            lines.push_back(fmt::format(
                "rank {}: it is on {} with others than planned", planned.rank, found.host));
        compare(planned.rank, "local rank", planned.local_rank, found.local_rank, lines);
        compare_cores(planned, found, lines);
        if (!planned.cpus.empty()) compare_gpus(planned, found, lines);
    }
    return lines;
}

void check_against_plan(const Placement& plan, std::span<const RankSeat> reality) {
    const auto lines = differences(plan, reality);
    check(lines.empty(), [&] {
        const auto shown = std::span(lines).first(std::min(lines.size(), most_shown));
        const auto more = lines.size() - shown.size();
        return Error("E644",
                     fmt::format("the job does not run as planned: {}{}",
                                 fmt::join(shown, "; "),
                                 more == 0 ? "" : fmt::format("; and {} more", more)),
                     "another launch line, other nodes, or another allocation than planned",
                     "start it with the line of 'lockstep map --format mpirun' or '--format srun', "
                     "or make a new plan");
    });
}

}  // namespace lockstep
