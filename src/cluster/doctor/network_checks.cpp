// SPDX-License-Identifier: Apache-2.0

#include "doctor/families.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

struct InterfaceVariables {
    const char *include, *exclude;
};
constexpr std::array interface_variables{
    InterfaceVariables{"NCCL_SOCKET_IFNAME", ""},
    InterfaceVariables{"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"},
    InterfaceVariables{"OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_oob_tcp_if_exclude"},
    InterfaceVariables{"PRTE_MCA_prte_if_include", "PRTE_MCA_prte_if_exclude"}};

/// NCCL takes "eth" for all that begin so, and "=eth0" for exactly that.
bool matches(const std::string& word, const std::string& interface, bool is_nccl) {
    if (!is_nccl) return word == interface;
    return word.starts_with('=') ? word.substr(1) == interface : interface.starts_with(word);
}

/// Returns the fault of one word of a variable that chooses interfaces; "" if there is none.
std::string fault_of(const DoctorFacts& facts, const std::string& word, bool is_nccl) {
    if (word.starts_with('^') || word.find('/') != word.npos) return "";
    std::vector<std::string> chosen;
    for (const NetworkInterface& each : facts.node.interfaces)
        if (matches(word, each.name, is_nccl)) chosen.push_back(each.name);
    if (chosen.empty()) return fmt::format("chooses '{}', which this node does not have", word);
    for (const LeftOutInterface& out : addresses_of(facts.node).left_out)
        if (std::ranges::count(chosen, out.name) > 0)
            return fmt::format("chooses {}: {}", out.name, out.why);
    if (chosen.size() > 1) return fmt::format("chooses {}", fmt::join(chosen, " and "));
    return "";
}

/// MPI gives up or hangs where its variables are wrong; NCCL mostly finds another way.
Ailments chosen_badly(const DoctorFacts& facts) {
    Ailments found;
    for (const InterfaceVariables& each : interface_variables) {
        const bool is_nccl = std::string_view(each.exclude).empty();
        if (is_nccl && !facts.plan.uses_gpus) continue;
        const auto say = [&](std::string what) {
            found.push_back({.what = std::move(what),
                             .severity = is_nccl ? Severity::warning : Severity::error,
                             .ranks = {facts.rank}});
        };
        if (facts.environment.contains(each.include) && facts.environment.contains(each.exclude))
            say(fmt::format("{} and {} are both set", each.include, each.exclude));
        for (const std::string& word : comma_separated(variable(facts, each.include)))
            if (const auto fault = fault_of(facts, word, is_nccl); !fault.empty())
                say(variable_text(facts, each.include) + " " + fault);
    }
    return found;
}

/// Returns networks behind two interfaces, and left-out interfaces that MPI and NCCL would still
/// try.
std::vector<std::string> distractions(const NodeTopology& node) {
    std::vector<std::string> text;
    std::map<std::string, std::set<std::string>> by_network;
    const HostAddresses addresses = addresses_of(node);
    for (const HostAddress& each : addresses.usable)
        by_network[each.network].insert(each.interface);
    for (const auto& [network, interfaces] : by_network)
        if (interfaces.size() > 1)
            text.push_back(fmt::format("{} share {}", fmt::join(interfaces, " and "), network));
    for (const LeftOutInterface& out : addresses.left_out)
        if (out.why.starts_with("a bridge") || out.why.starts_with("link-local"))
            text.push_back(fmt::format("{} is {}", out.name, out.why));
    return text;
}

bool chooses_interface(const DoctorFacts& facts) {
    return std::ranges::any_of(interface_variables, [&](const auto& each) {
        return facts.environment.contains(each.include) || facts.environment.contains(each.exclude);
    });
}

std::string interface_in(const NodeTopology& node, const std::string& network) {
    for (const HostAddress& each : addresses_of(node).usable)
        if (each.network == network) return each.interface;
    return "";
}

RanksByValue networks_of(const RanksOfNode& first_ranks) {
    RanksByValue networks;
    for (const auto* facts : first_ranks) {
        std::set<std::string> here;
        for (const HostAddress& each : addresses_of(facts->node).usable) here.insert(each.network);
        const auto text = here.empty() ? "none" : fmt::format("{}", fmt::join(here, "+"));
        networks[text].push_back(facts->rank);
    }
    return networks;
}

/// Networks that all nodes are in.
std::vector<std::string> common_networks(const RanksOfNode& first_ranks) {
    std::vector<const NodeTopology*> topologies;
    for (const auto* facts : first_ranks) topologies.push_back(&facts->node);
    return shared_networks(topologies);
}

Ailments wrong_interface(JobRanks ranks) {
    const auto nodes = first_of_nodes(ranks);
    if (nodes.size() < 2) return {};
    Ailments found;
    for (const auto* facts : nodes)
        std::ranges::move(chosen_badly(*facts), std::back_inserter(found));
    const auto shared = common_networks(nodes);
    if (shared.empty() && std::ranges::any_of(nodes, [](const auto* facts) {
            return !facts->node.interfaces.empty();
        }))
        found.push_back({.what = fmt::format("the nodes have no common network: {}",
                                             values_text(networks_of(nodes))),
                         .fix = "ask for nodes of one partition, or have an interface set up that "
                                "joins them",
                         .severity = Severity::warning});
    for (const auto* facts : nodes) {
        const auto others = distractions(facts->node);
        if (others.empty() || shared.empty() || chooses_interface(*facts)) continue;
        const auto name = interface_in(facts->node, shared.front());
        found.push_back({.what = fmt::format("{}", fmt::join(others, "; ")),
                         .why = "MPI and NCCL also try such interfaces, and hang if these do not "
                                "reach the other nodes.",
                         .fix = fmt::format("export OMPI_MCA_btl_tcp_if_include={} "
                                            "OMPI_MCA_oob_tcp_if_include={} NCCL_SOCKET_IFNAME=={}",
                                            name,
                                            name,
                                            name),
                         .severity = Severity::warning,
                         .ranks = {facts->rank}});
    }
    return found;
}

Ailments name_is_loopback(JobRanks ranks) {
    if (nodes_of(ranks).size() < 2) return {};
    Ailments found;
    for (const DoctorFacts& facts : ranks)
        for (const std::string& address : facts.system.host_addresses)
            if (address.starts_with("127.") || address == "::1")
                found.push_back(
                    {.what = fmt::format("/etc/hosts gives this host the address {}", address),
                     .ranks = {facts.rank}});
    return found;
}

std::string use_of(const std::string& network) {
    return fmt::format(
        "export OMPI_MCA_btl_tcp_if_include={0} OMPI_MCA_oob_tcp_if_include={0}, or "
        "mpirun --mca btl_tcp_if_include {0} --mca oob_tcp_if_include {0}",
        network);
}

Ailments unreached(const DoctorFacts& facts) {
    Ailments found;
    const auto& working = facts.network.working;
    for (const UnreachedAddress& each : facts.network.unreached) {
        const bool has_other_way = std::ranges::count(facts.network.reached, each.host) > 0;
        found.push_back({.what = fmt::format(
                             "no connection to {} ({}): {}", each.host, each.address, each.reason),
                         .fix = has_other_way && !working.empty() ? use_of(working.front()) : "",
                         .severity = has_other_way ? Severity::warning : Severity::error});
    }
    return found;
}

Ailments mixed_mtu(JobRanks ranks) {
    std::map<std::string, RanksByValue> by_network;
    for (const auto* facts : first_of_nodes(ranks))
        for (const HostAddress& each : addresses_of(facts->node).usable)
            for (const NetworkInterface& interface : facts->node.interfaces)
                if (interface.name == each.interface && interface.mtu > 0)
                    by_network[each.network][fmt::format("{}", interface.mtu)].push_back(
                        facts->rank);
    Ailments found;
    for (const auto& [network, values] : by_network)
        if (values.size() > 1)
            found.push_back({fmt::format("network {}: {}", network, values_text(values))});
    return found;
}

constexpr std::array discouraged{"NCCL_ALGO",
                                 "NCCL_PROTO",
                                 "NCCL_NTHREADS",
                                 "NCCL_BUFFSIZE",
                                 "NCCL_IB_DISABLE",
                                 "NCCL_P2P_DISABLE",
                                 "NCCL_SHM_DISABLE",
                                 "NCCL_NVLS_ENABLE"};

Ailments differing_variables(JobRanks ranks) {
    std::set<std::string> names;
    for (const DoctorFacts& facts : ranks)
        for (const auto& [name, value] : facts.environment)
            if (name.starts_with("NCCL_")) names.insert(name);
    Ailments found;
    for (const std::string& name : names) {
        RanksByValue values;
        for (const DoctorFacts& facts : ranks)
            values[variable_text(facts, name)].push_back(facts.rank);
        if (values.size() > 1)
            found.push_back({.what = values_text(values),
                             .why = "Ranks that choose differently wait for each other for ever.",
                             .fix = "export it for all ranks alike (mpirun -x, slurm/env.sh)",
                             .severity = Severity::error});
    }
    return found;
}

Ailments nccl_settings(JobRanks ranks) {
    if (std::ranges::none_of(ranks, [](const auto& facts) { return facts.plan.uses_gpus; }))
        return {};
    Ailments found = differing_variables(ranks);
    for (const DoctorFacts& facts : ranks) {
        for (const char* name : discouraged)
            if (facts.environment.contains(name))
                found.push_back({.what = variable_text(facts, name), .ranks = {facts.rank}});
        for (const std::string& file : facts.system.nccl_files)
            found.push_back({.what = fmt::format("NCCL also reads {}", file),
                             .severity = Severity::info,
                             .ranks = {facts.rank}});
    }
    return found;
}

Ailments ras_port(const DoctorFacts& facts) {
    const auto owner = facts.system.ras_port_owner;
    if (!facts.plan.uses_gpus || !owner || *owner == facts.system.user) return {};
    return {{fmt::format("port 28028 is taken by user {}", *owner)}};
}

const std::array network_table{
    DoctorCheck{"F9",
                "the wrong network interface",
                "Traffic between nodes needs one network that all of them are in.",
                "name one interface exactly: OMPI_MCA_btl_tcp_if_include=eth0, "
                "NCCL_SOCKET_IFNAME==eth0, or a network such as 10.0.0.0/24 for MPI",
                wrong_interface,
                Severity::error},
    DoctorCheck{"F10",
                "the host's own name is a loopback address",
                "Programs that send the address of their host's name to others make these connect "
                "to themselves.",
                "remove the 127.0.1.1 line from /etc/hosts, or give the host its real address "
                "there",
                name_is_loopback},
    DoctorCheck{"F11",
                "nodes do not reach each other",
                "A firewall or a missing route: MPI and NCCL connect to ports that the system "
                "picks.",
                "open the ports of `sysctl net.ipv4.ip_local_port_range` between the nodes, both "
                "ways",
                unreached,
                Severity::error,
                Pace::slow},
    DoctorCheck{"F12",
                "nodes have different MTUs",
                "Large packets get lost at the smaller MTU, and connections hang.",
                "have the same MTU set on the interface of all nodes (ip link set dev eth0 mtu N)",
                mixed_mtu},
    DoctorCheck{"F15",
                "variables fix NCCL's algorithms or paths",
                "NCCL chooses algorithms and paths by itself; fixed ones are slow or hang "
                "elsewhere.",
                "unset it, unless it was measured on this cluster",
                nccl_settings},
    DoctorCheck{"F16",
                "NCCL's status port is taken",
                "Another user's job on this node listens there; NCCL continues without it.",
                "export NCCL_RAS_ADDR=localhost:28029",
                ras_port,
                Severity::info},
};

}  // namespace

std::span<const DoctorCheck> network_checks() {
    return network_table;
}

std::string network_text(JobRanks ranks) {
    const auto nodes = first_of_nodes(ranks);
    if (nodes.size() < 2) return "";
    std::set<std::string> left_out;  // "docker0 (a bridge for containers)", each once
    int tried = 0, silent = 0;
    for (const auto* facts : nodes) {
        for (const LeftOutInterface& each : addresses_of(facts->node).left_out)
            left_out.insert(fmt::format("{} ({})", each.name, each.why));
        tried += facts->network.tried;
        silent += static_cast<int>(facts->network.unreached.size());
    }
    const auto common = common_networks(nodes);
    return fmt::format(
        "network: {}{}{}\n",
        common.empty() ? "none joins all nodes"
                       : fmt::format("{} joins all nodes", fmt::join(common, ", ")),
        tried == 0 ? "" : fmt::format(", {} of {} connections open", tried - silent, tried),
        left_out.empty() ? "" : fmt::format("; left out: {}", fmt::join(left_out, ", ")));
}

}  // namespace lockstep
