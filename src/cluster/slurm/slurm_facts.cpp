// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error strange(const std::string& command, const std::string& line) {
    return Error("E511",
                 fmt::format("cannot read what '{}' says", command),
                 printable(line),
                 "please report the version of SLURM ('sinfo --version') and this line");
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
    return split(found->second, ',');
}

// "Name=value Name=value": values have no spaces in what is read here.
std::map<std::string, std::string> fields_of(const std::string& line) {
    std::map<std::string, std::string> fields;
    for (const std::string& word : split(line, ' '))
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
    std::vector<std::string> lines = split(text, '\n');
    std::erase_if(lines, [](const std::string& line) { return line.empty(); });
    return lines;
}

// "8+" where sinfo folded nodes that differ: at least 8.
std::optional<std::int64_t> count_of(std::string text) {
    if (text.ends_with('+')) text.pop_back();
    return parse_integer(text);
}

// A number of few digits: no sign, nothing that could overflow below.
bool is_number(const std::string& text) {
    return !text.empty() && text.size() <= 9 && std::ranges::all_of(text, [](char c) {
        return std::isdigit(static_cast<unsigned char>(c));
    });
}

std::optional<std::int64_t> digits(const std::string& text) {
    return is_number(text) ? parse_integer(text) : std::nullopt;
}

constexpr std::size_t most_hosts = 65536;

// Cut at commas that are in no brackets; nothing where brackets do not pair.
std::optional<std::vector<std::string>> items_of(const std::string& text) {
    std::vector<std::string> items(1);
    int depth = 0;
    for (const char c : text) {
        depth += c == '[' ? 1 : c == ']' ? -1 : 0;
        if (depth < 0 || depth > 1) return std::nullopt;
        if (c == ',' && depth == 0)
            items.emplace_back();
        else
            items.back() += c;
    }
    return depth == 0 ? std::optional(items) : std::nullopt;
}

// "01-03" as 01, 02, 03 after `head`. Whether it is a range, and not too long.
bool add_range(const std::string& head, const std::string& range, std::vector<std::string>& names) {
    const auto ends = split(range, '-');
    if (ends.size() > 2 || !std::ranges::all_of(ends, is_number)) return false;
    const std::int64_t first = *parse_integer(ends.front()), last = *parse_integer(ends.back());
    if (last < first || last - first >= static_cast<std::int64_t>(most_hosts)) return false;
    for (std::int64_t i = first; i <= last; ++i)
        names.push_back(fmt::format("{}{:0{}}", head, i, ends.front().size()));
    return names.size() <= most_hosts;
}

// One item: a name, or one with brackets, after each of which more may follow.
bool add_item(const std::string& item, std::vector<std::string>& names) {
    std::vector<std::string> heads = {""};
    std::string rest = item;
    while (!rest.empty()) {
        const auto open = rest.find('[');
        for (std::string& head : heads) head += rest.substr(0, open);
        if (open == rest.npos) break;
        const auto close = rest.find(']', open);
        std::vector<std::string> longer;
        for (const std::string& head : heads)
            for (const std::string& range : split(rest.substr(open + 1, close - open - 1), ','))
                if (!add_range(head, range, longer)) return false;
        heads = std::move(longer);
        rest = rest.substr(close + 1);
    }
    names.insert(names.end(), heads.begin(), heads.end());
    return !item.empty() && names.size() <= most_hosts;
}

// "gpu:h100:4(S:0-1),gpu:2" as counts by type.
std::map<std::string, std::int64_t> parse_gpus(const std::string& gres) {
    std::map<std::string, std::int64_t> counts;
    int depth = 0;
    std::string plain;  // without "(S:0-1)", which has commas of its own
    for (const char c : gres) {
        if (c == '(') ++depth;
        if (depth == 0) plain += c;
        if (c == ')') --depth;
    }
    for (const std::string& item : split(plain, ',')) {
        const auto fields = split(item, ':');
        if (fields[0] != "gpu") continue;
        const auto count = parse_integer(fields.back());
        counts[fields.size() > 2 || !count ? fields[1] : ""] += count.value_or(1);
    }
    return counts;
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
        const auto columns = split(line, '|');
        check(columns.size() == 9, [&] { return strange("sinfo", line); });
        const auto shape = split(columns[6], ':');  // sockets:cores:threads
        check(shape.size() == 3, [&] { return strange("sinfo", line); });
        const auto number = [&](const std::string& word) {
            const auto count = count_of(word);
            check(count.has_value(), [&] { return strange("sinfo", line); });
            return *count;
        };
        const bool has_features = columns[7] != "(null)";
        groups.push_back(
            {.partition = columns[0],
             .state = columns[1],
             .nodes = number(columns[2]),
             .cpus = number(columns[3]),
             .memory_mb = number(columns[4]),
             .gpus = parse_gpus(columns[5]),
             .sockets = number(shape[0]),
             .socket_cores = number(shape[1]),
             .core_threads = number(shape[2]),
             .features = has_features ? split(columns[7], ',') : std::vector<std::string>(),
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
        const auto columns = split(line, '|');
        check(columns.size() == 2, [&] { return strange("sacctmgr", line); });
        add(found.accounts, columns[0]);
        for (const std::string& qos : split(columns[1], ',')) add(found.qos, qos);
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

std::optional<std::int64_t> parse_slurm_time(const std::string& text) {
    const auto dash = text.find('-');
    const bool has_days = dash != text.npos;
    const auto days = has_days ? digits(text.substr(0, dash)) : 0;
    const auto fields = split(has_days ? text.substr(dash + 1) : text, ':');
    if (!days || fields.size() > 3) return std::nullopt;
    // With days hours come first; without, two fields are minutes and seconds, one is minutes.
    const std::size_t first = has_days || fields.size() == 3 ? 0 : 1;
    std::int64_t parts[4] = {0, 0, 0, 0};
    for (std::size_t i = 0; i < fields.size(); ++i) {
        const auto part = digits(fields[i]);
        if (!part) return std::nullopt;
        parts[first + i] = *part;
    }
    return ((*days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
}

std::string slurm_time_text(std::int64_t seconds) {
    const std::string clock =
        fmt::format("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    return seconds < 86'400 ? clock : fmt::format("{}-{}", seconds / 86'400, clock);
}

std::optional<std::vector<std::string>> expand_hosts(const std::string& text) {
    const auto items = items_of(text);
    if (!items) return std::nullopt;
    std::vector<std::string> names;
    for (const std::string& item : *items)
        if (!add_item(item, names)) return std::nullopt;
    return names;
}

}  // namespace lockstep
