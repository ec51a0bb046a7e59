// SPDX-License-Identifier: Apache-2.0
// Logs of many ranks for tests/bench/logs, as a run leaves them:
//   bench_logs write RUN RANKS LINES   processes write at the same time, as ranks do; each line
//                                      ends with the microseconds since 1970 at which it was begun
//   bench_logs make RUN RANKS LINES    as many lines as fast as they can be made: half of them the
//                                      same on all ranks, half their own; 10 us apart, by clocks
//                                      that differ
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/run_directory.hpp"

#include <cstdio>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr int ranks_on_node = 8;
constexpr double first_s = 1.7e9;

double skew_s(int rank) {
    return 0.001 * (rank / ranks_on_node * 37 % 100);
}

void write_as_rank(const fs::path& folder, int rank, int ranks, long lines) {
    open_log({.rank = rank,
              .world_size = ranks,
              .start = 1,
              .host = fmt::format("n{}", rank / ranks_on_node),
              .directory = folder,
              .terminal_level = Level::error});
    log_event(ClockEvent{});
    for (long line = 0; line < lines; ++line)
        here(Level::info,
             "line {} of rank {} with words that fill it up to what is usual, begun at {:.0f}",
             line,
             rank,
             unix_time_s() * 1e6);
}

void make_log(const fs::path& folder, int rank, long lines) {
    const fs::path path = folder / fmt::format("rank-{:05}.jsonl", rank);
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    check(bool(fd), [&] { return Error("E402", "cannot write " + path.string()); });
    const std::string about = fmt::format(R"("rank":{},"start":1,"t":)", rank);
    const std::string host = fmt::format("n{}", rank / ranks_on_node);
    std::string text =
        fmt::format(R"({{"ahead_s":{},"error_s":1e-05,"event":"clock","host":"{}",{}{:.6f}}})",
                    skew_s(rank),
                    host,
                    about,
                    first_s);
    text += '\n';
    const auto flush = [&] {
        write_all(fd.value(), std::as_bytes(std::span(text)), path);
        text.clear();
    };
    for (long line = 0; line < lines; ++line) {
        const double time_s = first_s + 1e-5 * static_cast<double>(line) + skew_s(rank);
        fmt::format_to(std::back_inserter(text),
                       R"({{"event":"log","host":"{}","level":"info",{}{:.6f},"text":"step )",
                       host,
                       about,
                       time_s);
        text += line % 2 == 0 ? fmt::format("{} of the epoch is done\"}}\n", line)
                              : fmt::format("{} has taken {} us here\"}}\n",
                                            line,
                                            (line * 7919 + rank * 104729) % 100003);
        if (text.size() > (std::size_t{1} << 20)) flush();
    }
    flush();
}

void in_children(int count, int at_once, const std::function<void(int)>& work) {
    int running = 0;
    const auto reap = [&] {
        int status = 0;
        ::wait(&status);
        --running;
        check(status == 0, [] { return Error("E612", "a writer failed"); });
    };
    for (int child = 0; child < count; ++child) {
        if (running == at_once) reap();
        if (::fork() == 0) {
            work(child);
            ::_exit(0);
        }
        ++running;
    }
    while (running > 0) reap();
}

int run(const std::vector<std::string>& words) {
    check(words.size() == 4, [] { return Error("E105", "usage: write|make RUN RANKS LINES"); });
    const int ranks = std::stoi(words[2]);
    const long lines = std::stol(words[3]);
    RunDirectory directory = RunDirectory::open(words[1]);
    directory.create({});
    directory.begin_incarnation();
    const fs::path folder = directory.logs();
    if (words[0] == "write")
        in_children(ranks, ranks, [&](int rank) { write_as_rank(folder, rank, ranks, lines); });
    else
        in_children(ranks, 2, [&](int rank) { make_log(folder, rank, lines); });
    directory.write_state({.phase = RunPhase::complete, .step = 1, .steps_total = 1});
    return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
    try {
        return lockstep::run(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_logs: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
