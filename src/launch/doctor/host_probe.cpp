// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/host_probe.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"

#include "doctor/probes.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// The common fabric of one launch, with a note for people; `is_there` only if each host has a port
/// that leads to all.
struct CommonFabric {
    bool is_there = false;
    std::string note;  ///< "" where no host has a port
};

constexpr const char* ethernet = "Ethernet";

bool is_reachable(const HostProbe& host,
                  const ProbedPort& port,
                  const std::string& layer,
                  const std::string& network) {
    if (port.link_layer != layer) return false;
    if (layer != ethernet) return true;
    return std::ranges::any_of(host.own.usable, [&](const HostAddress& each) {
        return each.interface == port.interface && each.network == network;
    });
}

/// "a mlx5_0:1, b mlx5_0:1": the ports of all hosts; "" if one has none.
std::string all_ports(std::span<const HostProbe> hosts,
                      const std::string& layer,
                      const std::string& network) {
    std::vector<std::string> texts;
    for (const HostProbe& host : hosts) {
        std::vector<std::string> names;
        for (const ProbedPort& port : host.rdma_ports)
            if (is_reachable(host, port, layer, network)) names.push_back(port.name);
        if (names.empty()) return "";
        texts.push_back(fmt::format("{} {}", host.name, fmt::join(names, " ")));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

/// InfiniBand where each host has an active port of it. RoCE where each has an active port whose
/// interface is in one of `joining`, networks in which all hosts were seen to reach each other:
/// many servers have such a card that leads nowhere, and two kinds do not reach each other.
CommonFabric common_fabric(std::span<const HostProbe> hosts, std::span<const std::string> joining) {
    if (const auto ports = all_ports(hosts, "InfiniBand", ""); !ports.empty())
        return {true, fmt::format("MPI may use InfiniBand ({})", ports)};
    for (const std::string& network : joining)
        if (const auto ports = all_ports(hosts, ethernet, network); !ports.empty())
            return {true, fmt::format("MPI may use RoCE ({})", ports)};
    std::vector<std::string> without;
    for (const HostProbe& host : hosts)
        if (host.rdma_ports.empty()) without.push_back(host.name);
    if (without.size() == hosts.size()) return {};
    if (without.empty())
        return {false,
                "RDMA is left out: no InfiniBand on all hosts, nor RoCE in a network of all"};
    return {false, fmt::format("RDMA is left out: no active port on {}", fmt::join(without, ", "))};
}

/// Begins the lines of the talk: a login may print others.
constexpr std::string_view mark = "lockstep-probe ";

void say(const Json& words) {
    fmt::print("{}{}\n", mark, words.dump());
    std::fflush(stdout);
}

Json json_of(const HostAddresses& addresses) {
    Json usable = Json::array(), left_out = Json::array();
    for (const auto& each : addresses.usable)
        usable.push_back({each.interface, each.address, each.network});
    for (const auto& each : addresses.left_out) left_out.push_back({each.name, each.why});
    return {{"usable", usable}, {"left_out", left_out}};
}

/// Text `index` of a list that another host sent.
std::string word(const Json& list, std::size_t index) {
    return list.at(index).get<std::string>();
}

/// Structs of three texts, each sent as a list.
template <class Sent>
std::vector<Sent> all_from(const Json& list) {
    std::vector<Sent> all;
    for (const Json& each : list) all.push_back({word(each, 0), word(each, 1), word(each, 2)});
    return all;
}

HostAddresses addresses_from(const Json& json) {
    HostAddresses addresses{.usable = all_from<HostAddress>(json.at("usable")), .left_out = {}};
    for (const Json& each : json.at("left_out"))
        addresses.left_out.push_back({word(each, 0), word(each, 1)});
    return addresses;
}

Json json_of(const std::vector<const RdmaPort*>& ports) {
    Json list = Json::array();
    for (const RdmaPort* port : ports)
        list.push_back({port->name(), port->link_layer, port->interface});
    return list;
}

/// One host, and what it said last that was no answer.
struct Conversation {
    std::string name;
    TalkingProcess process;
    std::string last_words = "nothing";

    /// Its next answer. Errors: E647.
    Json hear(double deadline_s) {
        while (const auto line = process.hear(deadline_s)) {
            if (line->starts_with(mark))
                return parse_json(line->substr(mark.size()), "words of host " + name);
            if (!line->empty()) last_words = printable(*line);
        }
        throw Error("E647",
                    fmt::format("host '{}' does not report its addresses", name),
                    fmt::format("it was asked over ssh; its last output: {}", last_words),
                    fmt::format("'ssh {} true' must work without a password, and this program must "
                                "exist there under the same path",
                                name));
    }
};

/// Why each network of any host does not join all of them; "" for one that does.
std::map<std::string, std::string> reasons_against(std::span<const HostProbe> hosts) {
    std::map<std::string, std::string> reasons, networks;  // by network, by address
    for (const HostProbe& host : hosts)
        for (const HostAddress& each : host.own.usable) {
            reasons[each.network];
            networks[each.address] = each.network;
        }
    for (auto& [network, reason] : reasons)
        for (const HostProbe& host : hosts)
            if (reason.empty() &&
                std::ranges::count(host.own.usable, network, &HostAddress::network) == 0)
                reason = fmt::format("{} is not in it", host.name);
    for (const HostProbe& host : hosts)
        for (const UnreachedAddress& each : host.unreached) {
            auto& reason = reasons[networks[each.address]];
            if (reason.empty())
                reason = fmt::format("{} does not reach {} ({}): {}",
                                     host.name,
                                     each.host,
                                     each.address,
                                     each.reason);
        }
    return reasons;
}

/// "docker0 (a bridge for containers), 10.2.0.0/24 (b is not in it)"
std::string left_out_text(std::span<const HostProbe> hosts,
                          const std::map<std::string, std::string>& reasons) {
    std::set<std::string> words;
    for (const HostProbe& host : hosts)
        for (const LeftOutInterface& each : host.own.left_out)
            if (each.why != "loopback") words.insert(fmt::format("{} ({})", each.name, each.why));
    for (const auto& [network, reason] : reasons)
        if (!reason.empty()) words.insert(fmt::format("{} ({})", network, reason));
    return fmt::format("{}", fmt::join(words, ", "));
}

std::string names_of(std::span<const HostProbe> hosts) {
    std::vector<std::string> names;
    for (const HostProbe& host : hosts) names.push_back(host.name);
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void answer_probe(double limit_s) {
    ::alarm(static_cast<unsigned>(limit_s));  // whoever asked may be gone without a word
    const NodeTopology node = read_topology({"/", nullptr});
    const OpenPorts ports(node);
    say({{"offer", ports.offer()},
         {"addresses", json_of(addresses_of(node))},
         {"rdma_ports", json_of(active_rdma_ports(node))}});
    std::string line;
    if (!std::getline(std::cin, line)) return;
    const Json words = parse_json(line, "words of the host that asks");
    const auto probe = ports.try_others(words.at("offers").get<std::vector<std::string>>(),
                                        words.at("index").get<int>());
    Json unreached = Json::array();
    for (const auto& each : probe.unreached)
        unreached.push_back({each.host, each.address, each.reason});
    say({{"unreached", unreached}});
    while (std::getline(std::cin, line)) continue;  // ports stay open until everyone has tried
}

std::vector<HostProbe> ask_hosts(std::span<const std::string> names,
                                 std::span<const std::vector<std::string>> commands,
                                 double limit_s) {
    const double deadline_s = now_s() + limit_s;
    std::vector<Conversation> talks;
    for (std::size_t i = 0; i < names.size(); ++i)
        talks.push_back({names[i], TalkingProcess(commands[i])});
    std::vector<HostProbe> hosts;
    std::vector<std::string> offers;
    for (Conversation& talk : talks) {
        const Json words = talk.hear(deadline_s);
        hosts.push_back({talk.name, addresses_from(words.at("addresses")), {}});
        if (const Json* ports = words.find("rdma_ports"))
            hosts.back().rdma_ports = all_from<ProbedPort>(*ports);
        offers.push_back(words.at("offer").get<std::string>());
    }
    for (std::size_t i = 0; i < talks.size(); ++i)
        talks[i].process.say(Json{{"offers", offers}, {"index", i}}.dump());
    for (std::size_t i = 0; i < talks.size(); ++i)
        hosts[i].unreached = all_from<UnreachedAddress>(talks[i].hear(deadline_s).at("unreached"));
    return hosts;
}

LaunchNetwork choose_network(std::span<const HostProbe> hosts, const std::string& preferred) {
    const auto reasons = reasons_against(hosts);
    std::string chosen;
    std::vector<std::string> joining;
    for (const auto& [network, reason] : reasons) {
        if (!reason.empty()) continue;
        joining.push_back(network);
        if (chosen.empty() || network == preferred) chosen = network;
    }
    const auto left_out = left_out_text(hosts, reasons);
    check(!chosen.empty(),
          "E647",
          fmt::format("no network connects the hosts {}", names_of(hosts)),
          left_out.empty() ? "they have no addresses" : "left out: " + left_out,
          "open the ports of `sysctl net.ipv4.ip_local_port_range` between them, or "
          "choose yourself: export OMPI_MCA_btl_tcp_if_include=NETWORK "
          "OMPI_MCA_oob_tcp_if_include=NETWORK");
    const CommonFabric fabric = common_fabric(hosts, joining);
    return {true,
            chosen,
            fmt::format("network {} joins {}{}{}{}{}",
                        chosen,
                        names_of(hosts),
                        fabric.note.empty() ? "" : "; ",
                        fabric.note,
                        left_out.empty() ? "" : "; left out: ",
                        left_out),
            fabric.is_there};
}

}  // namespace lockstep
