// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "bench/comm_report.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

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

std::optional<double> ratio_to_open_mpi(const Measurements& measured, const Measurement& row) {
    for (const Measurement& other : measured.rows)
        if (other.method == SumMethod::open_mpi && other.bytes == row.bytes)
            return other.best_s / row.best_s;
    return {};
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
    check(wrong == 0, [&] {
        return Error("E651",
                     fmt::format("{} elements are not the sum", grouped(wrong)),
                     "the tables above say which method and size",
                     "please report them with the versions in the first line");
    });
    double best = 0;
    for (const Measurement& row : report.measured.rows)
        if (row.method == SumMethod::lockstep)
            best = std::max(best, bus_gb_per_s(row.bytes, row.best_s, report.ranks));
    check(best >= min_gb_per_s, [&] {
        return Error("E652",
                     fmt::format("lockstep reaches {:.2f} GB/s of bus bandwidth, --min-busbw asks "
                                 "for {}",
                                 best,
                                 min_gb_per_s),
                     "no size was faster",
                     "look for other work on these cores, or for slower memory than expected");
    });
}

}  // namespace lockstep
