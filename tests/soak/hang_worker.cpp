// SPDX-License-Identifier: Apache-2.0
// A rank that does nothing but exchange buckets, until one of them meets a fault. See
// tests/soak/hang.
#include "lockstep/comm/recorded.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/run/verdict.hpp"
#include "lockstep/run/watchdog.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace lockstep;

struct Options {
    fs::path folder;
    std::string fault;
    int victim;
    std::uint64_t at_step;
    double timeout_s;
};

/// The signal of each fault; 0: none.
const std::map<std::string, int> faults = {
    {"stop", SIGSTOP}, {"kill", SIGKILL}, {"exit", 0}, {"size", 0}};

void pause_ms(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

struct Rank {
    Communicator ranks;
    FlightRecorder recorder;
    Watchdog watchdog;
    bool is_victim;

    Rank(const Communicator& world, const Options& options)
        : ranks(world),
          recorder(options.folder, world.rank(), world.size()),
          watchdog(
              recorder, WatchdogSettings::within(options.timeout_s), [](const WatchReport&) {}),
          is_victim(world.rank() == options.victim) {
        mirror_signals_to(recorder.signal_word());
    }
    ~Rank() { mirror_signals_to(nullptr); }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
};

// As a rank with another layout would, which make_exchange() does not let begin.
[[noreturn]] void call_another_size(Rank& rank) {
    constexpr std::uint32_t channel = 0;
    rank.recorder.start(
        rank.recorder.enqueue(channel, {.op = FlightOp::reduce, .bytes = 4, .bucket = 0}));
    for (;;) pause_ms(1000);
}

void exchange_buckets(Rank& rank, const Options& options) {
    const std::vector<std::size_t> counts(8, 4000);
    const FlatLayout layout(counts, 16, BucketLimits{16 << 10, 32 << 10});
    const TreePlan plan(4, rank.ranks.size());
    const auto exchange = recorded(make_exchange(rank.ranks, layout, plan), layout, rank.recorder);
    rank.recorder.mark_running();
    for (std::uint64_t step = 0;; ++step) {
        const bool is_hit = rank.is_victim && step == options.at_step;
        if (is_hit) {
            // For whoever measures how long the verdict took.
            std::ofstream(options.folder / "fault") << fmt::format("{:.6f}\n", unix_time_s());
            if (options.fault == "exit") return rank.recorder.mark_finished();
            if (options.fault == "size") call_another_size(rank);
        }
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            exchange->arrive(b);
            if (is_hit && faults.at(options.fault) != 0) ::raise(faults.at(options.fault));
        }
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) exchange->reduce(b, Wait::yes);
        exchange->publish();
        pause_ms(1);
    }
}

int run_rank(const Options& options) {
    const MpiSession session;
    const SignalGuard signals;
    const Communicator world = Communicator::world();
    try {
        Rank rank(world, options);
        exchange_buckets(rank, options);
        return 0;
    } catch (const Error& error) {
        fmt::print(stderr, "{}\n", error.text(fmt::format("rank {}", world.rank())));
        world.abort(static_cast<int>(error.exit_code()));
    }
}

/// What a launcher would say afterwards, if no rank has spoken.
int diagnose_folder(const fs::path& folder) {
    const auto given = read_verdict(folder);
    const auto traces = read_rank_traces(folder);
    const Verdict verdict = given ? *given : diagnose(traces, unix_time_s(), 0);
    fmt::print("{}\n", json_of(verdict).dump());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 2 && words[0] == "diagnose") return diagnose_folder(words[1]);
    if (words.size() != 5 || !faults.contains(words[1])) {
        fmt::print(stderr, "usage: hang_worker FOLDER stop|kill|exit|size VICTIM STEP S\n");
        return 64;
    }
    return run_rank(
        {words[0], words[1], std::stoi(words[2]), std::stoull(words[3]), std::stod(words[4])});
}
