// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/cluster/map.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t table_columns = 10;
using TableRow = std::array<std::string, table_columns>;

std::string or_dash(const std::string& text) {
    return text.empty() ? "-" : text;
}

/// "GPU-1234abcd": enough of a UUID to tell GPUs apart.
std::string short_uuid(const std::string& uuid) {
    const auto dash = uuid.find('-', uuid.find('-') + 1);
    const bool is_telling = uuid.substr(0, dash).find_first_not_of("GPUMI-0") != uuid.npos;
    return is_telling ? uuid.substr(0, dash) : uuid;
}

TableRow row_of(const RankSeat& seat) {
    return {std::to_string(seat.rank),
            seat.host,
            std::to_string(seat.local_rank),
            cpu_list_text(seat.cpus) + (seat.is_bound ? "*" : ""),
            seat.threads > 0 ? std::to_string(seat.threads) : "-",
            seat.comm_cpu ? std::to_string(*seat.comm_cpu) : "-",
            cpu_list_text(seat.numa_nodes),
            seat.gpu.empty()
                ? "-"
                : seat.gpu + (seat.gpu_uuid.empty() ? "" : " " + short_uuid(seat.gpu_uuid)),
            or_dash(seat.nic_path),
            or_dash(seat.nic)};
}

std::string line_of(const TableRow& row, const std::array<std::size_t, table_columns>& widths) {
    std::string line;
    for (std::size_t i = 0; i < table_columns; ++i)
        line += fmt::format("{:<{}}", row[i], i + 1 < table_columns ? widths[i] + 2 : 0);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

/// "2 nodes | 16 ranks x 13 threads"
std::string summary_of(const Placement& placement) {
    std::set<std::string> hosts;
    int least = placement.seats.front().threads, most = least;
    for (const auto& seat : placement.seats) {
        hosts.insert(seat.host);
        least = std::min(least, seat.threads);
        most = std::max(most, seat.threads);
    }
    auto threads = most == 0 ? "" : fmt::format(" x {} thread{}", most, most == 1 ? "" : "s");
    if (least != most) threads = fmt::format(" x {} to {} threads", least, most);
    return fmt::format("{} node{} | {} rank{}{}\n",
                       hosts.size(),
                       hosts.size() == 1 ? "" : "s",
                       placement.seats.size(),
                       placement.seats.size() == 1 ? "" : "s",
                       threads);
}

}  // namespace

std::string placement_table(const Placement& placement) {
    if (placement.seats.empty()) return "no ranks\n";
    std::vector<TableRow> rows{
        {"rank", "node", "local", "cores", "threads", "comm", "numa", "gpu", "path", "nic"}};
    for (const auto& seat : placement.seats) rows.push_back(row_of(seat));
    std::array<std::size_t, table_columns> widths{};
    for (const auto& row : rows)
        for (std::size_t i = 0; i < table_columns; ++i)
            widths[i] = std::max(widths[i], row[i].size());
    std::string text = summary_of(placement);
    for (const auto& row : rows) text += line_of(row, widths);
    const bool has_bound = std::ranges::any_of(placement.seats, &RankSeat::is_bound);
    if (has_bound) text += "* bound by the launcher, and kept\n";
    for (const auto& warning : placement.warnings) text += "warning: " + warning + "\n";
    return text;
}

}  // namespace lockstep
