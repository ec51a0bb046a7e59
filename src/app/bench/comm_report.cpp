// SPDX-License-Identifier: Apache-2.0
#include "bench/comm_report.hpp"

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string commented(const std::string& text) {
    std::istringstream lines(text);
    std::string out;
    for (std::string line; std::getline(lines, line);) out += "# " + line + "\n";
    return out;
}

std::string row_text(const Measurement& row, int ranks) {
    return fmt::format("{:>12} {:>13} {:>19} {:>11.2f} {:>11.2f} {:>8.2f} {:>8.2f} {:>7}\n",
                       row.bytes,
                       row.bytes / sizeof(float),
                       name_of(row.method),
                       1e6 * row.median_s,
                       1e6 * row.best_s,
                       algorithm_gb_per_s(row.bytes, row.median_s),
                       bus_gb_per_s(row.bytes, row.median_s, ranks),
                       row.wrong ? fmt::format("{}", *row.wrong) : "N/A");
}

std::string blocks_text(const CommReport& report) {
    constexpr std::string_view columns =
        "#       size         count                algo        time        best    algbw    busbw  "
        "#wrong\n"
        "#        (B)      (floats)                            (us)        (us)   (GB/s)   "
        "(GB/s)\n";
    std::string text;
    for (const SumMethod method : report.plan.methods) {
        const std::string transport =
            method == SumMethod::lockstep ? fmt::format(" ({})", report.measured.transport) : "";
        text += fmt::format("#\n# {}{}\n{}", name_of(method), transport, columns);
        for (const Measurement& row : report.measured.rows)
            if (row.method == method) text += row_text(row, report.ranks);
    }
    return text;
}

/// The speed of `row` divided by Open MPI's at the same size; nothing if not measured.
std::optional<double> ratio_to_open_mpi(const Measurements& measured, const Measurement& row) {
    for (const Measurement& other : measured.rows)
        if (other.method == SumMethod::open_mpi && other.bytes == row.bytes)
            return other.best_s / row.best_s;
    return {};
}

std::string ratios_text(const CommReport& report) {
    std::vector<SumMethod> others = report.plan.methods;
    if (std::erase(others, SumMethod::open_mpi) == 0) return {};
    std::string text = "#\n# times as fast as open-mpi (best blocks)\n#       size";
    for (const SumMethod method : others) text += fmt::format(" {:>18}", name_of(method));
    for (const Measurement& row : report.measured.rows) {
        if (row.method == others.front()) text += fmt::format("\n{:>12}", bytes_text(row.bytes));
        if (row.method != SumMethod::open_mpi)
            text += fmt::format(" {:>18.2f}", *ratio_to_open_mpi(report.measured, row));
    }
    return text + "\n";
}

const Measurement& lockstep_at(const CommReport& report, std::size_t bytes) {
    return *std::ranges::find_if(report.measured.rows, [&](const Measurement& row) {
        return row.method == SumMethod::lockstep && row.bytes == bytes;
    });
}

std::string limits_text(const CommReport& report) {
    constexpr std::size_t least = 1u << 20;  // below, caches and waiting decide
    std::string text;
    for (const MemoryLimit& limit : report.measured.limits) {
        if (limit.bytes < least) continue;
        const double best_s = lockstep_at(report, limit.bytes).best_s;
        text += fmt::format("{:>12} {:>13.1f} {:>13.1f} {:>9.0f} %\n",
                            bytes_text(limit.bytes),
                            limit.bytes_per_s / 1e9,
                            shared_memory_bytes(limit.bytes, report.ranks) / best_s / 1e9,
                            100 * fraction_of(limit, best_s, report.ranks));
    }
    if (text.empty()) return {};
    return "#\n# lockstep against this node's memory: every rank adds alone, as fast as it can\n"
           "#       size  adding alone      lockstep     reached\n"
           "#                   (GB/s)        (GB/s)\n" +
           text;
}

/// Open MPI's name and version without its build.
std::string mpi_version() {
    const std::string text = MpiSession::library_version();
    return text.substr(0, text.find_first_of(",\n"));
}

Json row_json(const CommReport& report, const Measurement& row) {
    Json json = {{"algo", name_of(row.method)},
                 {"bytes", row.bytes},
                 {"count", row.bytes / sizeof(float)},
                 {"best_us", 1e6 * row.best_s},
                 {"median_us", 1e6 * row.median_s},
                 {"algbw_gb_per_s", algorithm_gb_per_s(row.bytes, row.median_s)},
                 {"busbw_gb_per_s", bus_gb_per_s(row.bytes, row.median_s, report.ranks)},
                 {"wrong", row.wrong ? Json(*row.wrong) : Json()}};
    if (const auto ratio = ratio_to_open_mpi(report.measured, row)) json["times_open_mpi"] = *ratio;
    return json;
}

std::uint64_t wrong_elements(const CommReport& report) {
    std::uint64_t wrong = 0;
    for (const Measurement& row : report.measured.rows) wrong += row.wrong.value_or(0);
    return wrong;
}

/// The fastest of each size.
std::vector<const Measurement*> winners(const Measurements& measured) {
    std::map<std::size_t, const Measurement*> best;
    for (const Measurement& row : measured.rows) {
        const Measurement*& winner = best[row.bytes];
        if (winner == nullptr || row.best_s < winner->best_s) winner = &row;
    }
    std::vector<const Measurement*> found;
    for (const auto& [bytes, row] : best) found.push_back(row);
    return found;
}

std::string against_open_mpi(const CommReport& report) {
    const Measurement *worst = nullptr, *best = nullptr;
    const auto ratio = [&](const Measurement& row) {
        return *ratio_to_open_mpi(report.measured, row);
    };
    for (const Measurement& row : report.measured.rows) {
        if (row.method != SumMethod::lockstep || !ratio_to_open_mpi(report.measured, row)) continue;
        if (worst == nullptr || ratio(row) < ratio(*worst)) worst = &row;
        if (best == nullptr || ratio(row) > ratio(*best)) best = &row;
    }
    if (worst == nullptr) return {};
    return fmt::format("; lockstep is {:.1f} (at {}) to {:.1f} (at {}) times as fast as open-mpi",
                       ratio(*worst),
                       bytes_text(worst->bytes),
                       ratio(*best),
                       bytes_text(best->bytes));
}

}  // namespace

std::string_view split_name(RankSplit split) {
    constexpr std::string_view names[] = {"all", "intra", "inter"};
    return names[static_cast<int>(split)];
}

std::string header_text(const CommReport& report) {
    const MeasurePlan& plan = report.plan;
    std::string sizes = bytes_text(plan.sizes.front());
    if (plan.sizes.size() > 1) sizes += " to " + bytes_text(plan.sizes.back());
    const std::string block = plan.iterations > 0 ? fmt::format("{} sums", plan.iterations)
                                                  : fmt::format("{:.0f} ms", 1e3 * plan.block_s);
    return fmt::format("# lockstep {} bench comm | {} | {}\n",
                       version_text(),
                       mpi_version(),
                       report.cpu_model) +
           commented(placement_table({report.seats, {}})) +
           fmt::format("# sums of float32 over {} rank(s), {} node(s), split {}\n",
                       report.ranks,
                       report.nodes,
                       split_name(report.split)) +
           fmt::format(
               "# {}, {} alternating blocks of {} each; time: the median block's of the "
               "slowest rank\n",
               sizes,
               plan.rounds,
               block);
}

std::string tables_text(const CommReport& report) {
    return blocks_text(report) + ratios_text(report) + limits_text(report) + "#\n";
}

Json report_json(const CommReport& report) {
    Json json = {{"bench", "comm"},
                 {"lockstep", version_text()},
                 {"mpi", mpi_version()},
                 {"cpu", report.cpu_model},
                 {"hosts", Json::array()},
                 {"ranks", report.ranks},
                 {"nodes", report.nodes},
                 {"split", split_name(report.split)},
                 {"transport", report.measured.transport},
                 {"rounds", report.plan.rounds},
                 {"results", Json::array()},
                 {"memory_limits", Json::array()}};
    for (const RankSeat& seat : report.seats)
        json["hosts"].push_back({{"rank", seat.rank}, {"host", seat.host}, {"cpus", seat.cpus}});
    for (const Measurement& row : report.measured.rows)
        json["results"].push_back(row_json(report, row));
    for (const MemoryLimit& limit : report.measured.limits)
        json["memory_limits"].push_back(
            {{"bytes", limit.bytes}, {"gb_per_s", limit.bytes_per_s / 1e9}});
    json["verdict"] = verdict_text(report);
    return json;
}

std::string verdict_text(const CommReport& report) {
    const auto best = winners(report.measured);
    std::map<SumMethod, std::size_t> wins;
    for (const Measurement* row : best) ++wins[row->method];
    const auto [most, count] =
        *std::ranges::max_element(wins, {}, [](auto& x) { return x.second; });
    const std::uint64_t wrong = wrong_elements(report);
    std::string text = report.plan.checks == 0 ? "sums were not checked"
                       : wrong == 0            ? "every sum is exact"
                                    : fmt::format("{} elements are WRONG", grouped(wrong));
    if (report.plan.methods.size() > 1)
        text +=
            fmt::format("; {} is the fastest at {} of {} sizes", name_of(most), count, best.size());
    return text + against_open_mpi(report);
}

void judge(const CommReport& report, double min_gb_per_s) {
    const std::uint64_t wrong = wrong_elements(report);
    check(wrong == 0,
          "E651",
          fmt::format("{} elements of the sums are wrong", grouped(wrong)),
          "the tables above say which method and size",
          "please report them with the versions in the first line");
    double best = 0;
    for (const Measurement& row : report.measured.rows)
        if (row.method == SumMethod::lockstep)
            best = std::max(best, bus_gb_per_s(row.bytes, row.best_s, report.ranks));
    check(best >= min_gb_per_s,
          "E652",
          fmt::format("lockstep reaches {:.2f} GB/s of bus bandwidth, --min-busbw asks for {}",
                      best,
                      min_gb_per_s),
          "no size was faster",
          "check for other work on these cores, and whether memory is slower than expected");
}

}  // namespace lockstep
