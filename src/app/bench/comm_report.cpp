// SPDX-License-Identifier: Apache-2.0
#include "bench/comm_report.hpp"

#include "lockstep/cluster/map.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"

#include <algorithm>
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

bool is_lent(const CommReport& report) {
    return report.plan.place == BufferPlace::lent;
}

std::string row_text(const Measurement& row, int ranks) {
    return fmt::format("{:>12} {:>13} {:>9} {:>19} {:>11.2f} {:>11.2f} {:>8.2f} {:>8.2f} {:>7}\n",
                       row.bytes,
                       row.count,
                       name_of(row.type),
                       name_of(row.algorithm),
                       1e6 * row.median_s,
                       1e6 * row.best_s,
                       algorithm_gb_per_s(row.bytes, row.median_s),
                       bus_gb_per_s(row.bytes, row.median_s, ranks),
                       row.wrong ? fmt::format("{}", *row.wrong) : "N/A");
}

std::string blocks_text(const CommReport& report) {
    std::string text;
    for (const Algorithm algorithm : report.plan.algorithms) {
        text += fmt::format(
            "#\n# {}\n#{:>11} {:>13} {:>9} {:>19} {:>11} {:>11} {:>8} {:>8} {:>7}\n"
            "#{:>11} {:>13} {:>9} {:>19} {:>11} {:>11} {:>8} {:>8}\n",
            name_of(algorithm),
            "size",
            "count",
            "type",
            "algo",
            "time",
            "best",
            "algbw",
            "busbw",
            "#wrong",
            "(B)",
            "(elements)",
            "",
            "",
            "(us)",
            "(us)",
            "(GB/s)",
            "(GB/s)");
        for (const Measurement& row : report.measured.rows)
            if (row.algorithm == algorithm) text += row_text(row, report.ranks);
    }
    return text;
}

std::string ratios_text(const CommReport& report) {
    std::vector<Algorithm> others = report.plan.algorithms;
    const auto rest = std::ranges::remove(others, Algorithm::open_mpi);
    if (rest.empty()) return {};
    others.erase(rest.begin(), rest.end());
    if (others.empty()) return {};
    std::string text = "#\n# times as fast as open-mpi (best blocks)\n#       size      type";
    for (const Algorithm algorithm : others) text += fmt::format(" {:>18}", name_of(algorithm));
    std::string line;
    for (const Measurement& row : report.measured.rows) {
        if (row.algorithm == report.plan.algorithms.front())
            line = fmt::format("\n{:>12} {:>9}", bytes_text(row.bytes), name_of(row.type));
        if (row.algorithm != Algorithm::open_mpi)
            line += fmt::format(" {:>18.2f}", *ratio_to_open_mpi(report.measured, row));
        if (row.algorithm == report.plan.algorithms.back()) text += line;
    }
    return text + "\n";
}

const Measurement* shared_memory_at(const CommReport& report, std::size_t bytes) {
    for (const Measurement& row : report.measured.rows)
        if (row.algorithm == Algorithm::shared_memory && row.type == DataType::float32 &&
            row.bytes == bytes)
            return &row;
    return nullptr;
}

std::string limits_text(const CommReport& report) {
    constexpr std::size_t least = 1u << 20;  // below, caches and barriers decide
    std::string text;
    for (const MemoryLimit& limit : report.measured.limits) {
        const Measurement* row = shared_memory_at(report, limit.bytes);
        if (limit.bytes < least || row == nullptr) continue;
        text += fmt::format("{:>12} {:>13.1f} {:>13.1f} {:>9.0f} %\n",
                            bytes_text(limit.bytes),
                            limit.bytes_per_s / 1e9,
                            2.0 * report.ranks * algorithm_gb_per_s(row->bytes, row->best_s),
                            100 * fraction_of(limit, row->best_s, report.ranks));
    }
    if (text.empty()) return {};
    return fmt::format(
               "#\n# shared-memory against this node's memory: every rank adds alone, as fast as "
               "it "
               "can\n#{:>11} {:>13} {:>13} {:>11}\n#{:>11} {:>13} {:>13}\n",
               "size",
               "adding alone",
               "shared-memory",
               "reached",
               "",
               "(GB/s)",
               "(GB/s)") +
           text;
}

std::string cost_text(const char* name, const Cost& cost) {
    std::string text = fmt::format("# {:<9}", name);
    for (const Cost::Regime& line : cost.regimes)
        text += fmt::format(" | from {}: {:.2f} us + n / {:.1f} GB/s",
                            bytes_text(static_cast<std::uint64_t>(line.from_bytes)),
                            1e6 * line.a_s,
                            line.b_s_per_byte > 0 ? 1e-9 / line.b_s_per_byte : 0);
    return text + "\n";
}

/// Ranks that did not run here, on a machine with the same constants.
std::string extrapolated_text(const CommReport& report) {
    std::string text =
        "#\n# predicted, not measured: more ranks, each with as much core and memory as here "
        "(us)\n";
    text += fmt::format("#{:>5} {:>10}", "ranks", "size");
    for (const Algorithm algorithm : report.plan.algorithms)
        if (predict_s(algorithm, report.model->cost, 1, 2))
            text += fmt::format(" {:>18}", name_of(algorithm));
    for (int ranks = 2 * report.ranks; ranks <= 8 * report.ranks; ranks *= 2)
        for (const std::size_t bytes :
             {std::size_t{4} << 10, std::size_t{1} << 20, std::size_t{64} << 20}) {
            text += fmt::format("\n{:>6} {:>10}", ranks, bytes_text(bytes));
            for (const Algorithm algorithm : report.plan.algorithms)
                if (const auto seconds =
                        predict_s(algorithm, report.model->cost, static_cast<double>(bytes), ranks))
                    text += fmt::format(" {:>18.2f}", 1e6 * *seconds);
        }
    return text + "\n";
}

std::string model_text(const CommReport& report) {
    const MachineCost& cost = report.model->cost;
    std::string text = "#\n# cost model: constants measured apart from all-reduces (n bytes)\n";
    text += cost_text("message", cost.message) + cost_text("exchange", cost.exchange) +
            cost_text("sum", cost.sum) +
            fmt::format(
                "# barrier   | {:.2f} us\n#\n# hold-out: none of these all-reduces was used "
                "for the constants\n#{:>11} {:>19} {:>13} {:>13} {:>8}\n#{:>11} {:>19} "
                "{:>13} {:>13}\n",
                1e6 * cost.barrier_s,
                "size",
                "algo",
                "measured",
                "predicted",
                "error",
                "(B)",
                "",
                "(us)",
                "(us)");
    for (const HeldOut& point : report.model->points)
        text += fmt::format("{:>12} {:>19} {:>13.2f} {:>13.2f} {:>+7.0f} %\n",
                            point.measured.bytes,
                            name_of(point.measured.algorithm),
                            1e6 * point.measured.best_s,
                            1e6 * point.predicted_s,
                            100 * point.error());
    return text +
           fmt::format("# hold-out error: median {:.1f} % over {} points\n",
                       100 * median_error(report.model->points),
                       report.model->points.size()) +
           extrapolated_text(report);
}

std::string size_range(const std::vector<std::size_t>& sizes) {
    return sizes.size() == 1
               ? bytes_text(sizes.front())
               : fmt::format("{} to {}", bytes_text(sizes.front()), bytes_text(sizes.back()));
}

}  // namespace

std::string mpi_version() {
    const std::string text = MpiSession::library_version();
    return text.substr(0, text.find_first_of(",\n"));
}

std::string header_text(const CommReport& report) {
    const MeasurePlan& plan = report.plan;
    const std::string block = plan.iterations > 0 ? fmt::format("{} all-reduces", plan.iterations)
                                                  : fmt::format("{:.0f} ms", 1e3 * plan.block_s);
    return fmt::format("# lockstep {} bench comm | {} | {}\n",
                       version_text(),
                       mpi_version(),
                       report.cpu_model) +
           commented(placement_table({report.seats, {}})) +
           fmt::format("# all-reduce over {} rank(s), {} node(s), split {} | buffers {}\n",
                       report.ranks,
                       report.nodes,
                       split_name(report.split),
                       is_lent(report) ? "in the window that an algorithm lends, where it has one"
                                       : "in private memory") +
           fmt::format(
               "# {}, {} alternating blocks of {} each; time: the median block's of the "
               "slowest rank\n",
               size_range(plan.sizes),
               plan.rounds,
               block);
}

std::string tables_text(const CommReport& report) {
    return blocks_text(report) + ratios_text(report) + limits_text(report) +
           (report.model ? model_text(report) : "") + "#\n";
}

}  // namespace lockstep
