// SPDX-License-Identifier: Apache-2.0

#include "io_ways.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <exception>
#include <latch>
#include <limits>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <sched.h>

namespace lockstep {
namespace {

// This thread, and those that it starts, stay on processor number `number` of the process, as a
// rank that is bound to a core does.
void keep_to_processor(int number) {
    cpu_set_t allowed, kept;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    number %= CPU_COUNT(&allowed);
    CPU_ZERO(&kept);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&kept) == 0; ++cpu)
        if (CPU_ISSET(cpu, &allowed) && number-- == 0) CPU_SET(cpu, &kept);
    ::sched_setaffinity(0, sizeof kept, &kept);
}

constexpr double mega = 1e6;

const IoRow* best_stream(const IoMeasurements& measured, CacheState state) {
    const IoRow* best = nullptr;
    for (const IoRow& row : measured.rows)
        if (row.way == IoWay::stream && row.state == state &&
            (best == nullptr || row.bytes_per_s() > best->bytes_per_s()))
            best = &row;
    return best;
}

std::string share_text(const IoMeasurements& measured, const IoRow& row) {
    const auto share = measured.share_of_pread(row);
    return share ? fmt::format(", {:.0f} % of pread", 100 * *share) : "";
}

std::string advice(std::string_view stage, CacheState state) {
    if (stage == "decode")
        return "more I/O threads help while there are cores; else a codec that expands faster";
    if (stage == "verify") return "more I/O threads help while there are cores";
    if (stage == "assemble")
        return "one thread gathers rows: larger rows go faster, and data in memory (resident)";
    if (stage != "I/O") return "";
    return state == CacheState::cold
               ? "the storage binds: more I/O threads if pread gains by them, else a copy on "
                 "faster storage or smaller blocks on it (lz4)"
               : "copying from the page cache binds: more I/O threads, or data in memory "
                 "(resident)";
}

/// Shares of the I/O threads' time, and of the assembler's.
std::string times_text(const IoRow& row) {
    const double io_s = row.best_s * row.threads;
    return fmt::format(
        "I/O threads: {:.0f} % read, {:.0f} % verify, {:.0f} % decode; assembler: {:.0f} %",
        100 * row.spent.read_s / io_s,
        100 * row.spent.verify_s / io_s,
        100 * row.spent.decode_s / io_s,
        100 * row.spent.assemble_s / row.best_s);
}

std::string verdict_of(const IoMeasurements& measured, const IoRow& row) {
    const std::string_view stage = binding_stage(row.spent, row.best_s);
    const double samples_per_s = row.bytes_per_s() / static_cast<double>(measured.bytes_per_sample);
    return fmt::format("{}: {} I/O thread(s) supply {} samples/s, {:.0f} MB/s{}; {} binds ({}): {}",
                       state_name(row.state),
                       row.threads,
                       grouped(static_cast<std::uint64_t>(samples_per_s)),
                       row.bytes_per_s() / mega,
                       share_text(measured, row),
                       stage,
                       times_text(row),
                       advice(stage, row.state));
}

Json row_json(const IoMeasurements& measured, const IoRow& row) {
    Json json = {{"way", way_name(row.way)},
                 {"cache", state_name(row.state)},
                 {"threads", row.threads},
                 {"best_s", row.best_s},
                 {"median_s", row.median_s},
                 {"bytes", row.bytes},
                 {"stored_bytes", row.stored_bytes}};
    if (row.bytes > 0) json["mb_per_s"] = row.bytes_per_s() / mega;
    if (row.stored_bytes > 0) json["stored_mb_per_s"] = row.stored_per_s() / mega;
    if (const auto share = measured.share_of_pread(row)) json["share_of_pread"] = *share;
    if (row.first_s > 0) json["first_batch_s"] = row.first_s;
    if (row.spent.blocks_read > 0)
        json["spent"] = {{"read_s", row.spent.read_s},
                         {"verify_s", row.spent.verify_s},
                         {"decode_s", row.spent.decode_s},
                         {"assemble_s", row.spent.assemble_s},
                         {"wait_s", row.spent.wait_s}};
    return json;
}

}  // namespace

double timed_threads(int threads, const std::function<std::function<void()>(int)>& prepare) {
    std::latch ready(threads);
    std::mutex mutex;
    std::exception_ptr error;
    double begin_s = std::numeric_limits<double>::infinity(), end_s = 0;
    const auto guarded = [&](const auto& action) {
        try {
            action();
        } catch (...) {
            const std::scoped_lock lock(mutex);
            if (!error) error = std::current_exception();
        }
    };
    const auto run = [&](int thread) {
        keep_to_processor(thread);
        std::function<void()> work = [] {};
        guarded([&] { work = prepare(thread); });
        ready.arrive_and_wait();
        const double began = now_s();
        guarded(work);
        const std::scoped_lock lock(mutex);
        begin_s = std::min(begin_s, began);
        end_s = std::max(end_s, now_s());
    };
    std::vector<std::jthread> running;
    // Those that run wait for all: what cannot be started is counted as there.
    int started = 0;
    guarded([&] {
        for (; started < threads; ++started) running.emplace_back(run, started);
    });
    ready.count_down(threads - started);
    running.clear();
    if (error) std::rethrow_exception(error);
    return end_s - begin_s;
}

std::vector<std::string> io_verdicts(const IoMeasurements& measured) {
    std::vector<std::string> verdicts;
    for (const CacheState state : {CacheState::hot, CacheState::cold})
        if (const IoRow* const row = best_stream(measured, state))
            verdicts.push_back(verdict_of(measured, *row));
    return verdicts;
}

Json io_json(const IoMeasurements& measured) {
    Json json = {{"codec", measured.codec},
                 {"samples", measured.samples},
                 {"bytes_per_sample", measured.bytes_per_sample},
                 {"bytes", measured.decoded_bytes},
                 {"stored_bytes", measured.stored_bytes},
                 {"results", Json::array()},
                 {"notes", measured.notes},
                 {"verdicts", io_verdicts(measured)}};
    for (const IoRow& row : measured.rows) json["results"].push_back(row_json(measured, row));
    return json;
}

}  // namespace lockstep
