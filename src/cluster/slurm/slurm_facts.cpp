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

SlurmPartition read_partition(const std::string& line) {
    std::map<std::string, std::string> fields;
    for (const std::string& word : split_text(line, ' '))
        if (const auto equals = word.find('='); equals != word.npos)
            fields[word.substr(0, equals)] = word.substr(equals + 1);
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
            .denied_accounts = names_of(fields, "DenyAccounts")};
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines = split_text(text, '\n');
    std::erase_if(lines, [](const std::string& line) { return line.empty(); });
    return lines;
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
        check(columns.size() == 6, [&] { return strange("sinfo", line); });
        const auto nodes = count_of(columns[2]), cpus = count_of(columns[3]),
                   memory_mb = count_of(columns[4]);
        check(nodes && cpus && memory_mb, [&] { return strange("sinfo", line); });
        groups.push_back(
            {columns[0], columns[1], *nodes, *cpus, *memory_mb, parse_gpus(columns[5])});
    }
    return groups;
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
