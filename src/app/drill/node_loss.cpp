// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"

#include "drill/faults.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr double named_within_s = 180;  // 30 s, and the time to begin and to end

/// Ranks of another host, which were stopped.
struct LostRanks {
    std::string host;
    std::vector<int> ranks;
    std::vector<std::int64_t> pids;
};

/// Those of the last host; none where all are here.
LostRanks last_ranks(const LiveRun& live) {
    LostRanks lost{.host = live.traces.back().host};
    if (lost.host == live.traces.front().host) return lost;
    for (const RankTrace& trace : live.traces)
        if (trace.host == lost.host) {
            lost.ranks.push_back(trace.rank);
            lost.pids.push_back(trace.pid);
        }
    return lost;
}

/// Sends a signal on another host, by the program with which mpirun reaches it. Returns whether.
bool signal_there(const LostRanks& lost, const char* signal) {
    const auto agents = Environment().text("OMPI_MCA_plm_rsh_agent").value_or("ssh");
    std::istringstream text(agents.substr(0, agents.find(':')));
    std::vector<std::string> words(std::istream_iterator<std::string>(text), {});
    words.insert(words.end(),
                 {lost.host, fmt::format("kill -{} {}", signal, fmt::join(lost.pids, " "))});
    constexpr double limit_s = 30;
    return run_process(words, {}, limit_s).exit_code == 0;
}

Expectation expect_lost_ranks(const fs::path& run, const LostRanks& lost) {
    const auto cause = root_cause(run, read_incarnation(run));
    const std::string expected =
        fmt::format("E660, of rank(s) {} on {}", fmt::join(lost.ranks, ", "), lost.host);
    if (!cause) return {"first error", expected, "none is told", false};
    const bool is_met = cause->error.code == "E660" && cause->error.host == lost.host &&
                        std::ranges::includes(lost.ranks, cause->error.ranks);
    const std::string found = fmt::format("{}, of rank(s) {} on {}",
                                          cause->error.code,
                                          fmt::join(cause->error.ranks, ", "),
                                          cause->error.host);
    return {"first error", expected, found, is_met};
}

FaultReport skip(const std::string& why) {
    return {.why_skipped = why};
}

}  // namespace

FaultReport lose_node(DrillBed& bed) {
    const std::string& hosts = bed.settings().hosts;
    if (hosts.find(',') == std::string::npos)
        return skip("it needs two nodes, and a --scratch that both see: --hosts a:1,b:1");
    Attack attack{.name = "node-loss",
                  .data = bed.data(),
                  .more = {"--comm-timeout", "10m"},
                  .hosts = hosts,
                  .limit_s = named_within_s};
    LostRanks lost;
    attack.strike = [&](const LiveRun& live) -> std::string {
        lost = last_ranks(live);
        if (lost.pids.empty() || !signal_there(lost, "STOP")) return "nothing could be stopped";
        return fmt::format("kill -STOP of all ranks on {} while they trained: silence", lost.host);
    };
    const Struck struck = bed.train(attack);
    if (lost.pids.empty()) return skip(fmt::format("no rank of {} was on another host", hosts));
    signal_there(lost, "KILL");  // they are gone already, unless the launcher could not end them
    FaultReport report{.done = struck.done};
    report.expectations = {expect_exit(76, struck),
                           expect_lost_ranks(bed.run(attack.name), lost),
                           bed.expect_nothing_left(attack),
                           bed.expect_same_parameters(attack)};
    return report;
}

}  // namespace lockstep
