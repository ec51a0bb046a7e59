// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/slurm_facts.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "slurm/text_parts.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error strange(const std::string& command, const std::string& line) {
    return Error("E511",
                 fmt::format("cannot read what '{}' says", command),
                 printable(line),
                 "tell us the version of SLURM ('sinfo --version') and this line");
}

// A limit as scontrol writes it. "UNLIMITED" and others that are no number: none.
std::optional<std::int64_t> limit_of(const std::map<std::string, std::string>& fields,
                                     const std::string& name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::nullopt : parse_integer(found->second);
}

// "ALL" and "(null)": no list.
std::vector<std::string> names_of(const std::map<std::string, std::string>& fields,
                                  const std::string& name) {
    const auto found = fields.find(name);
    if (found == fields.end() || found->second == "ALL" || found->second == "(null)") return {};
    return split_text(found->second, ',');
}

// "Name=value Name=value": values have no spaces in what is read here.
std::map<std::string, std::string> fields_of(const std::string& line) {
    std::map<std::string, std::string> fields;
    for (const std::string& word : split_text(line, ' '))
        if (const auto equals = word.find('='); equals != word.npos)
            fields[word.substr(0, equals)] = word.substr(equals + 1);
    return fields;
}

SlurmPartition read_partition(const std::string& line) {
    auto fields = fields_of(line);
    const auto nodes = limit_of(fields, "TotalNodes");
    check(fields.contains("PartitionName") && nodes,
          [&] { return strange("scontrol show partition", line); });
    return {.name = fields["PartitionName"],
            .is_default = fields["Default"] == "YES",
            .state = fields["State"],
            .total_nodes = *nodes,
            .least_nodes = limit_of(fields, "MinNodes").value_or(0),
            .most_nodes = limit_of(fields, "MaxNodes"),
            .most_seconds = parse_slurm_time(fields["MaxTime"]),
            .most_memory_mb = limit_of(fields, "MaxMemPerNode"),
            .most_node_cpus = limit_of(fields, "MaxCPUsPerNode"),
            .accounts = names_of(fields, "AllowAccounts"),
            .denied_accounts = names_of(fields, "DenyAccounts"),
            .qos = names_of(fields, "AllowQos"),
            .denied_qos = names_of(fields, "DenyQos")};
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines = split_text(text, '\n');
    std::erase_if(lines, [](const std::string& line) { return line.empty(); });
    return lines;
}

std::vector<std::string> feature_names(const std::string& column) {
    return column == "(null)" ? std::vector<std::string>() : split_text(column, ',');
}

// "8+" where sinfo folded nodes that differ: at least 8.
std::optional<std::int64_t> count_of(std::string text) {
    if (text.ends_with('+')) text.pop_back();
    return parse_integer(text);
}

}  // namespace

bool NodeGroup::is_usable() const {
    const auto has = [this](const char* word) { return state.starts_with(word); };
    const bool is_away = state.ends_with('*') || has("down") || has("drain") || has("fail") ||
                         has("inval") || has("unknown") || has("power_down");
    return !is_away;
}

std::int64_t NodeGroup::gpus_of(const std::string& type) const {
    std::int64_t count = 0;
    for (const auto& [name, number] : gpus)
        if (type.empty() || name == type) count += number;
    return count;
}

std::vector<SlurmPartition> parse_partitions(const std::string& text) {
    std::vector<SlurmPartition> partitions;
    for (const std::string& line : lines_of(text)) partitions.push_back(read_partition(line));
    return partitions;
}

std::vector<NodeGroup> parse_node_groups(const std::string& text) {
    std::vector<NodeGroup> groups;
    for (const std::string& line : lines_of(text)) {
        const auto columns = split_text(line, '|');
        check(columns.size() == 9, [&] { return strange("sinfo", line); });
        const auto shape = split_text(columns[6], ':');  // sockets:cores:threads
        check(shape.size() == 3, [&] { return strange("sinfo", line); });
        const auto number = [&](const std::string& word) {
            const auto count = count_of(word);
            check(count.has_value(), [&] { return strange("sinfo", line); });
            return *count;
        };
        groups.push_back({.partition = columns[0],
                          .state = columns[1],
                          .nodes = number(columns[2]),
                          .cpus = number(columns[3]),
                          .memory_mb = number(columns[4]),
                          .gpus = parse_gpus(columns[5]),
                          .sockets = number(shape[0]),
                          .socket_cores = number(shape[1]),
                          .core_threads = number(shape[2]),
                          .features = feature_names(columns[7]),
                          .names = expand_hosts(columns[8]).value_or(std::vector<std::string>())});
    }
    return groups;
}

std::vector<SlurmReservation> parse_reservations(const std::string& text) {
    std::vector<SlurmReservation> reservations;
    for (const std::string& line : lines_of(text)) {
        auto fields = fields_of(line);
        if (!fields.contains("ReservationName")) continue;  // "No reservations in the system"
        reservations.push_back({.name = fields["ReservationName"],
                                .state = fields["State"],
                                .start = fields["StartTime"],
                                .nodes = limit_of(fields, "NodeCnt").value_or(0),
                                .users = names_of(fields, "Users"),
                                .accounts = names_of(fields, "Accounts")});
    }
    return reservations;
}

SlurmAssociations parse_associations(const std::string& text) {
    SlurmAssociations found;
    const auto add = [](std::vector<std::string>& names, const std::string& name) {
        if (!name.empty() && std::ranges::count(names, name) == 0) names.push_back(name);
    };
    for (const std::string& line : lines_of(text)) {
        const auto columns = split_text(line, '|');
        check(columns.size() == 2, [&] { return strange("sacctmgr", line); });
        add(found.accounts, columns[0]);
        for (const std::string& qos : split_text(columns[1], ',')) add(found.qos, qos);
    }
    return found;
}

std::map<std::string, std::int64_t> parse_licences(const std::string& text) {
    std::map<std::string, std::int64_t> licences;
    for (const std::string& line : lines_of(text)) {
        auto fields = fields_of(line);
        if (fields.contains("LicenseName"))
            licences[fields["LicenseName"]] = limit_of(fields, "Total").value_or(0);
    }
    return licences;
}

std::map<std::string, std::string> parse_slurm_config(const std::string& text) {
    std::map<std::string, std::string> config;
    for (const std::string& line : lines_of(text)) {
        const auto equals = line.find(" = ");
        if (equals == line.npos) continue;
        config[line.substr(0, line.find(' '))] = line.substr(equals + 3);
    }
    return config;
}

std::vector<std::string> parse_mpi_types(const std::string& text) {
    std::vector<std::string> types;
    std::istringstream words(text);
    for (std::string word; words >> word;)
        if (!word.ends_with('.') && !word.ends_with(':')) types.push_back(word);
    return types;
}

std::map<std::string, std::int64_t> parse_gpus(const std::string& gres) {
    std::map<std::string, std::int64_t> counts;
    int depth = 0;
    std::string plain;  // without "(S:0-1)", which has commas of its own
    for (const char c : gres) {
        if (c == '(') ++depth;
        if (depth == 0) plain += c;
        if (c == ')') --depth;
    }
    for (const std::string& item : split_text(plain, ',')) {
        const auto fields = split_text(item, ':');
        if (fields[0] != "gpu") continue;
        const auto count = parse_integer(fields.back());
        counts[fields.size() > 2 || !count ? fields[1] : ""] += count.value_or(1);
    }
    return counts;
}

Error slurm_failure(const std::string& command, const std::string& output) {
    const bool is_munge =
        output.find("Munge") != output.npos || output.find("authentication error") != output.npos;
    if (is_munge)
        return Error("E530",
                     "SLURM cannot authenticate you on this host",
                     printable(output),
                     "munge does not run here: tell the administrators; nothing was submitted");
    return Error("E511",
                 fmt::format("SLURM does not answer '{}'", command),
                 printable(output),
                 "nothing was submitted: try again later, or tell the administrators");
}

}  // namespace lockstep
