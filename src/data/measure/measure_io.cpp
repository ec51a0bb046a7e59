// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/measure_io.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "measure/io_ways.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::array all_ways = {IoWay::copy,
                                 IoWay::pread,
                                 IoWay::h5dread,
                                 IoWay::h5dread_batches,
                                 IoWay::unverified,
                                 IoWay::blocks,
                                 IoWay::stream,
                                 IoWay::resident};

// One line of the result while it is being measured.
struct Lane {
    IoRow row;
    std::vector<double> seconds;
};

// Memory is the same hot or cold.
bool reads_files(IoWay way) {
    return way != IoWay::copy && way != IoWay::resident;
}

std::vector<CacheState> states_of(const IoBench& bench, IoMeasurements& measured) {
    std::vector<CacheState> states = bench.plan.states;
    if (bench.portion.rows < bench.index->samples() && std::erase(states, CacheState::hot) > 0)
        measured.notes.push_back(
            fmt::format("hot: not measured, the data set is larger than {}; its first {} rows are "
                        "read cold",
                        bytes_text(bench.plan.limit_bytes),
                        grouped(bench.portion.rows)));
    return states;
}

std::vector<Lane> lanes_of(const IoBench& bench, IoMeasurements& measured) {
    std::vector<Lane> lanes;
    const std::vector<CacheState> states = states_of(bench, measured);
    for (const IoWay way : all_ways) {
        const auto& wanted = bench.plan.ways;
        if (!wanted.empty() && std::ranges::find(wanted, way) == wanted.end()) continue;
        for (const CacheState state : reads_files(way) ? states : std::vector{CacheState::hot})
            for (const int threads : bench.plan.threads) {
                const std::string why = obstacle(bench, way, threads);
                const std::string note = fmt::format("{}: not measured, {}", way_name(way), why);
                if (why.empty())
                    lanes.push_back({.row = {.way = way, .state = state, .threads = threads}});
                else if (std::ranges::find(measured.notes, note) == measured.notes.end())
                    measured.notes.push_back(note);
            }
    }
    return lanes;
}

void keep_best(Lane& lane, const Pass& pass) {
    lane.seconds.push_back(pass.seconds);
    IoRow& row = lane.row;
    if (row.best_s > 0 && pass.seconds >= row.best_s) return;
    row.best_s = pass.seconds;
    row.bytes = pass.bytes;
    row.stored_bytes = pass.stored_bytes;
    row.first_s = pass.first_s;
    row.spent = pass.spent;
}

void run_lane(const IoBench& bench, Lane& lane, IoMeasurements& measured) {
    const IoRow& row = lane.row;
    const bool is_cold = row.state == CacheState::cold;
    if (is_cold) {
        const double left = drop_page_cache(*bench.index);
        const std::string note =
            "cold: the page cache could not be dropped, is this a memory file system?";
        if (left > 0.05 && std::ranges::find(measured.notes, note) == measured.notes.end())
            measured.notes.push_back(note);
    }
    keep_best(lane, run_way(bench, row.way, row.threads, is_cold ? 1 : bench.hot_repeats()));
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void run_rounds(const IoBench& bench, std::vector<Lane>& lanes, IoMeasurements& measured) {
    // What is measured hot comes first in a round, and is made hot before.
    std::ranges::stable_sort(lanes, {}, [](const Lane& lane) { return lane.row.state; });
    const std::uint64_t total = lanes.size() * static_cast<std::uint64_t>(bench.plan.rounds);
    std::uint64_t done = 0;
    for (int round = 0; round < bench.plan.rounds; ++round) {
        if (bench.portion.rows == bench.index->samples()) run_way(bench, IoWay::pread, 1, 1);
        for (Lane& lane : lanes) {
            const IoRow& row = lane.row;
            if (bench.plan.report)
                bench.plan.report(done++,
                                  total,
                                  fmt::format("{}, {}, {} thread(s)",
                                              way_name(row.way),
                                              state_name(row.state),
                                              row.threads));
            run_lane(bench, lane, measured);
        }
    }
}

void check_plan(const IoPlan& plan) {
    expect(!plan.threads.empty() && plan.rounds >= 1 && plan.batch >= 1 && plan.ring_bytes > 0 &&
               plan.least_bytes > 0,
           "a plan of measuring makes sense");
    for (const int threads : plan.threads)
        check(threads >= 1 && threads <= 1024, [&] {
            return Error("E102", fmt::format("{} threads", threads), "1 to 1024 are possible");
        });
}

}  // namespace

std::string_view way_name(IoWay way) {
    switch (way) {
        case IoWay::copy:
            return "memcpy";
        case IoWay::pread:
            return "pread";
        case IoWay::h5dread:
            return "H5Dread";
        case IoWay::h5dread_batches:
            return "H5Dread of batches";
        case IoWay::unverified:
            return "blocks, no hashes";
        case IoWay::blocks:
            return "blocks";
        case IoWay::stream:
            return "stream";
        case IoWay::resident:
            return "resident";
    }
    return "";
}

std::string_view state_name(CacheState state) {
    return state == CacheState::hot ? "hot" : "cold";
}

const IoRow* IoMeasurements::find(IoWay way, CacheState state, int threads) const {
    const auto found = std::ranges::find_if(rows, [&](const IoRow& row) {
        return row.way == way && row.state == state && row.threads == threads;
    });
    return found == rows.end() ? nullptr : &*found;
}

std::optional<double> IoMeasurements::share_of_pread(const IoRow& row) const {
    const IoRow* const limit = find(IoWay::pread, row.state, row.threads);
    if (limit == nullptr || row.stored_bytes == 0) return {};
    return row.stored_per_s() / limit->stored_per_s();
}

std::optional<double> IoMeasurements::share_of_copy(const IoRow& row) const {
    const IoRow* const limit = find(IoWay::copy, CacheState::hot, row.threads);
    if (limit == nullptr || row.bytes == 0) return {};
    return row.bytes_per_s() / limit->bytes_per_s();
}

IoMeasurements measure_io(std::shared_ptr<const DatasetIndex> index, const IoPlan& plan) {
    expect(index != nullptr, "there is a data set to measure");
    check_plan(plan);
    const IoBench bench(std::move(index), plan);
    IoMeasurements measured{.samples = bench.portion.rows,
                            .bytes_per_sample = bench.index->manifest().bytes_per_sample(),
                            .decoded_bytes = bench.portion.decoded_bytes,
                            .stored_bytes = bench.portion.stored_bytes,
                            .codec = std::string(codec_name(bench.index->manifest().codec))};
    std::vector<Lane> lanes = lanes_of(bench, measured);
    run_rounds(bench, lanes, measured);
    for (Lane& lane : lanes) {
        lane.row.median_s = median(lane.seconds);
        measured.rows.push_back(lane.row);
    }
    std::ranges::stable_sort(measured.rows, [](const IoRow& a, const IoRow& b) {
        return std::tuple(a.state, a.way, a.threads) < std::tuple(b.state, b.way, b.threads);
    });
    return measured;
}

}  // namespace lockstep
