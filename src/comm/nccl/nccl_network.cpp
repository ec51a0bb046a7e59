// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_network.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/record.hpp"

#include "nccl/rank_facts.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

using Ranks = std::span<const RankNetwork>;

NcclTransport without_device(NcclTransport transport) {
    const bool is_name = transport.kind == NcclTransportKind::plugin ||
                         transport.kind == NcclTransportKind::pcie ||
                         transport.kind == NcclTransportKind::peer;
    if (!is_name) transport.through.clear();
    return transport;
}

bool is_rdma(NcclTransportKind kind) {
    return kind == NcclTransportKind::infiniband || kind == NcclTransportKind::roce ||
           kind == NcclTransportKind::rdma;
}

using Pairs = std::vector<std::pair<int, int>>;

/// Pairs of ranks on one node, or of those between nodes, by what they use.
struct Scope {
    std::int64_t pairs = 0;
    std::map<NcclTransport, Pairs> users;
    std::map<NcclTransport, std::set<std::string>> devices;
    Pairs reported;

    std::int64_t silent() const { return pairs - std::ssize(reported); }
};

struct Scopes {
    std::size_t nodes = 0;
    Scope inside, between;
};

/// Each once. A list, not a set: of a thousand ranks a million pairs come.
void settle_pairs(Pairs& pairs) {
    std::ranges::sort(pairs);
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
}

void add_link(Ranks ranks, const NcclLink& link, Scopes& scopes) {
    const auto from = static_cast<std::size_t>(link.from);
    const auto to = static_cast<std::size_t>(link.to);
    if (from >= ranks.size() || to >= ranks.size() || from == to) return;
    Scope& scope = ranks[from].node == ranks[to].node ? scopes.inside : scopes.between;
    const NcclTransport kind = without_device(link.transport);
    scope.users[kind].emplace_back(link.from, link.to);
    scope.reported.emplace_back(link.from, link.to);
    if (kind.through.empty() && !link.transport.through.empty())
        scope.devices[kind].insert(link.transport.through);
}

Scopes scopes_of(Ranks ranks) {
    std::map<std::string, std::int64_t> on_node;
    for (const RankNetwork& rank : ranks) ++on_node[rank.node];
    Scopes scopes{.nodes = on_node.size(), .inside = {}, .between = {}};
    for (const auto& [node, count] : on_node) scopes.inside.pairs += count * (count - 1);
    scopes.between.pairs = std::ssize(ranks) * (std::ssize(ranks) - 1) - scopes.inside.pairs;
    for (const RankNetwork& rank : ranks)
        for (const NcclLink& link : rank.report.links) add_link(ranks, link, scopes);
    for (Scope* scope : {&scopes.inside, &scopes.between}) {
        settle_pairs(scope->reported);
        for (auto& [transport, pairs] : scope->users) settle_pairs(pairs);
    }
    return scopes;
}

std::string share_text(const NcclTransportShare& share) {
    std::string text = transport_text(share.transport);
    if (!share.through.empty()) text += fmt::format(" ({})", fmt::join(share.through, ", "));
    if (share.pairs < share.of) text += fmt::format(" for {} of {} pairs", share.pairs, share.of);
    return text;
}

/// Adds a scope's part to the summary, and returns it as text.
std::string sum_up(const Scope& scope, bool is_between, NetworkSummary& summary) {
    std::vector<std::string> parts;
    for (const auto& [transport, pairs] : scope.users) {
        NcclTransportShare share{is_between, transport, {}, std::ssize(pairs), scope.pairs};
        if (const auto devices = scope.devices.find(transport); devices != scope.devices.end())
            share.through.assign(devices->second.begin(), devices->second.end());
        parts.push_back(share_text(share));
        summary.shares.push_back(std::move(share));
    }
    summary.not_reported += scope.silent();
    if (scope.silent() == scope.pairs)
        parts.emplace_back("not reported");
    else if (scope.silent() > 0)
        parts.push_back(
            fmt::format("not reported for {} of {} pairs", scope.silent(), scope.pairs));
    return fmt::format("{}", fmt::join(parts, ", "));
}

/// Why a rank's NCCL leaves its ports alone, and what to do.
std::pair<std::string, std::string> cause_of(const RankNetwork& rank) {
    if (!rank.forbids_rdma.empty())
        return {rank.forbids_rdma + " is set", "unset it, in NCCL's configuration files, too"};
    if (rank.report.lacks_verbs)
        return {"NCCL cannot open libibverbs",
                "install it (libibverbs1 and ibverbs-providers on Debian, rdma-core elsewhere)"};
    if (rank.report.finds_no_device)
        return {"NCCL finds no RDMA device that it may use",
                "in a container pass /dev/infiniband; NCCL_IB_HCA must not leave all out; "
                "'lockstep doctor --only F' says more"};
    return {"NCCL does not say why",
            "'lockstep doctor --only F' checks ports and limits; a network plug-in in "
            "LD_LIBRARY_PATH may be the cause"};
}

/// Returns true if `rank` uses it to send or receive between nodes.
template <class Uses>
bool uses_between(Ranks ranks, std::size_t rank, Uses&& uses) {
    return std::ranges::any_of(ranks[rank].report.links, [&](const NcclLink& link) {
        const int other = link.from == static_cast<int>(rank) ? link.to : link.from;
        const auto there = static_cast<std::size_t>(other);
        return there < ranks.size() && ranks[there].node != ranks[rank].node &&
               uses(link.transport);
    });
}

/// Hosts and their ports, each once.
struct Affected {
    std::set<std::string> hosts, ports;

    void add(const RankNetwork& rank) {
        hosts.insert(rank.host);
        ports.insert(rank.rdma_ports.begin(), rank.rdma_ports.end());
    }
    std::string text() const {
        return fmt::format(
            "RDMA hardware {} is active on {}", fmt::join(ports, ", "), fmt::join(hosts, ", "));
    }
};

std::vector<std::string> unused_rdma(Ranks ranks) {
    std::map<std::pair<std::string, std::string>, Affected> by_cause;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        if (!ranks[rank].rdma_ports.empty() &&
            uses_between(ranks, rank, [](const NcclTransport& each) {
                return each.kind == NcclTransportKind::sockets;
            }))
            by_cause[cause_of(ranks[rank])].add(ranks[rank]);
    std::vector<std::string> warnings;
    for (const auto& [cause, affected] : by_cause)
        warnings.push_back(fmt::format("{}, but NCCL sends between nodes over sockets: {}; fix: {}",
                                       affected.text(),
                                       cause.first,
                                       cause.second));
    return warnings;
}

std::vector<std::string> no_gpu_direct(Ranks ranks) {
    Affected affected;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        if (uses_between(ranks, rank, [](const NcclTransport& each) {
                return is_rdma(each.kind) && !each.is_gpu_direct;
            }))
            affected.add(ranks[rank]);
    if (affected.hosts.empty()) return {};
    return {
        fmt::format("NCCL copies what goes between nodes through the host's memory on {}: no "
                    "GPUDirect; fix: 'lockstep doctor --only F6,F7,F8' says what is missing",
                    fmt::join(affected.hosts, ", "))};
}

}  // namespace

void describe(Record& record, RankNetwork& network) {
    LOCKSTEP_EACH(record.field, network.host, network.node);
    LOCKSTEP_EACH(record.sparse, network.rdma_ports, network.forbids_rdma);
    record.field("report", network.report);
    record.sparse("why_none", network.why_none);
}

void describe(Record& record, NcclTransportShare& share) {
    record.field("between_nodes", share.is_between_nodes);
    describe(record, share.transport);
    record.sparse("devices", share.through);
    LOCKSTEP_EACH(record.field, share.pairs, share.of);
}

void describe(Record& record, NetworkSummary& summary) {
    record.field("text", summary.text);
    record.field("transports", summary.shares);
    LOCKSTEP_EACH(record.field, summary.not_reported, summary.warnings);
}

RankNetwork rank_network(const NcclReportPlan& plan,
                         std::vector<std::string> rdma_ports,
                         const Environment& environment) {
    return {.host = host_name(),
            .node = nccl_host_id(environment),
            .rdma_ports = std::move(rdma_ports),
            .forbids_rdma = rdma_forbidden_by(environment),
            .report = read_nccl_report(plan),
            .why_none = plan.why_none};
}

std::string rdma_forbidden_by(const Environment& environment, const std::string& root) {
    const auto variables = nccl_variables(environment, root);
    const std::string network = nccl_variable(variables, "NCCL_NET");
    if (nccl_variable(variables, "NCCL_IB_DISABLE") == "1") return "NCCL_IB_DISABLE=1";
    if (network == "Socket" || network == "socket") return "NCCL_NET=" + network;
    return "";
}

NetworkSummary summarize_network(Ranks ranks) {
    NetworkSummary summary;
    if (ranks.size() < 2) return summary;
    const Scopes scopes = scopes_of(ranks);
    const auto inside = sum_up(scopes.inside, false, summary);
    const auto between = sum_up(scopes.between, true, summary);
    const bool has_inside = scopes.inside.pairs > 0, has_between = scopes.nodes > 1;
    summary.text = fmt::format("{} ranks on {} node{}: {}{}{}{}",
                               ranks.size(),
                               scopes.nodes,
                               scopes.nodes == 1 ? "" : "s",
                               has_inside ? inside : "",
                               has_inside && has_between ? " inside nodes; " : "",
                               has_between ? between : "",
                               has_between ? " between" : "");
    if (summary.shares.empty() && !ranks.front().why_none.empty())
        summary.text += ": " + ranks.front().why_none;
    for (const auto& more : {unused_rdma(ranks), no_gpu_direct(ranks)})
        summary.warnings.insert(summary.warnings.end(), more.begin(), more.end());
    return summary;
}

std::string links_text(const NcclReport& report, int rank) {
    std::map<std::string, std::vector<int>> receivers;
    for (const NcclLink& link : report.links) {
        if (link.from != rank) continue;
        std::string text = transport_text(without_device(link.transport));
        const bool has_device = link.transport != without_device(link.transport);
        if (has_device) text += fmt::format(" ({})", link.transport.through);
        receivers[text].push_back(link.to);
    }
    std::string text;
    for (auto& [transport, to] : receivers) {
        std::ranges::sort(to);
        text += fmt::format("{}{} by {}", text.empty() ? "" : ", ", ranks_text(to), transport);
    }
    return text;
}

}  // namespace lockstep
