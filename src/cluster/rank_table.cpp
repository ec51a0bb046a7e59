// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/rank_table.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t columns = 10;
using Cells = std::array<std::string, columns>;

/// Columns of numbers stand to the right.
constexpr std::array<bool, columns> is_number{true, false, true, true, false, false, true};

Cells header() {
    return {"rank", "host", "local", "pid", "cpus", "numa", "threads", "gpu", "isa", "memory"};
}

Cells cells_of(const RankRow& row) {
    return {std::to_string(row.rank),
            row.host,
            std::to_string(row.local_rank),
            std::to_string(row.pid),
            cpu_list_text(row.cpus),
            cpu_list_text(row.numa_nodes),
            std::to_string(row.threads),
            row.gpu,
            row.instruction_set,
            bytes_text(row.memory_bytes) + (row.memory_is_limited ? " (limit)" : "")};
}

std::string line_of(const Cells& cells, const std::array<std::size_t, columns>& widths) {
    std::string line;
    for (std::size_t i = 0; i < columns; ++i) {
        line += is_number[i] ? fmt::format("{:>{}}  ", cells[i], widths[i])
                             : fmt::format("{:<{}}  ", cells[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
}

std::vector<int> cpus_field(const Json& object, const std::string& key, const std::string& origin) {
    const auto text = json_field<std::string>(object, key, origin);
    if (text == "-") return {};
    const auto cpus = parse_cpu_list(text);
    check(cpus.has_value(), [&] {
        return Error("E222",
                     fmt::format("{}: '{}' is '{}', no list such as 0-3,8", origin, key, text));
    });
    return *cpus;
}

int int_field(const Json& object, const std::string& key, const std::string& origin) {
    const auto value = json_field<std::int64_t>(object, key, origin);
    check(value >= 0 && value <= std::numeric_limits<int>::max(), [&] {
        return Error("E222", fmt::format("{}: '{}' is {}, out of range", origin, key, value));
    });
    return static_cast<int>(value);
}

}  // namespace

RankRow make_rank_row(const NodeFacts& node, int rank, int local_rank, int threads) {
    RankRow row;
    row.rank = rank;
    row.host = node.host;
    row.host_id = node.host_id();
    row.local_rank = local_rank;
    row.pid = node.pid;
    row.cpus = node.cpus;
    row.numa_nodes = node.numa_nodes;
    row.threads = threads;
    row.instruction_set = instruction_set_name(node.instruction_set);
    row.memory_bytes = node.usable_memory_bytes();
    row.memory_is_limited = node.memory_limit_bytes.has_value();
    return row;
}

std::string serialize(const RankRow& row) {
    return Json{{"rank", row.rank},
                {"host", row.host},
                {"host_id", row.host_id},
                {"local_rank", row.local_rank},
                {"pid", row.pid},
                {"cpus", cpu_list_text(row.cpus)},
                {"numa_nodes", cpu_list_text(row.numa_nodes)},
                {"threads", row.threads},
                {"gpu", row.gpu},
                {"instruction_set", row.instruction_set},
                {"memory_bytes", row.memory_bytes},
                {"memory_is_limited", row.memory_is_limited}}
        .dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankRow deserialize_rank_row(std::string_view text, const std::string& origin) {
    const auto object = parse_json(text, origin);
    RankRow row;
    row.rank = int_field(object, "rank", origin);
    row.host = json_field<std::string>(object, "host", origin);
    row.host_id = json_field<std::string>(object, "host_id", origin);
    row.local_rank = int_field(object, "local_rank", origin);
    row.pid = json_field<std::int64_t>(object, "pid", origin);
    row.cpus = cpus_field(object, "cpus", origin);
    row.numa_nodes = cpus_field(object, "numa_nodes", origin);
    row.threads = int_field(object, "threads", origin);
    row.gpu = json_field<std::string>(object, "gpu", origin);
    row.instruction_set = json_field<std::string>(object, "instruction_set", origin);
    row.memory_bytes = json_field<std::uint64_t>(object, "memory_bytes", origin);
    row.memory_is_limited = json_field<bool>(object, "memory_is_limited", origin);
    return row;
}

std::string rank_table(std::span<const RankRow> rows) {
    std::vector<Cells> lines{header()};
    for (const auto& row : rows) lines.push_back(cells_of(row));
    std::array<std::size_t, columns> widths{};
    for (const auto& cells : lines) {
        for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], cells[i].size());
    }
    std::string text;
    for (const auto& cells : lines) text += line_of(cells, widths);
    return text;
}

}  // namespace lockstep
