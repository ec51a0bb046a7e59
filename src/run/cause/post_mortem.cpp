// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/post_mortem.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/run/verdict.hpp"

#include <algorithm>

namespace lockstep {
namespace {

bool is_there(const fs::path& path) {
    std::error_code failed;
    return fs::exists(path, failed);
}

// If all ranks are gone without a word, their launcher was: nobody is to be named.
void name_the_dead(const fs::path& flight, const LaunchedRun& run, std::uint64_t kills_before) {
    if (!is_there(flight)) return;
    const auto traces = read_rank_traces(flight);
    Verdict verdict = diagnose(traces, unix_time_s(), 0);
    const bool has_crashed = std::ranges::any_of(traces, is_crash, &RankTrace::signal);
    const bool are_all = verdict.culprits.size() == traces.size() && !has_crashed;
    if (verdict.trouble != Trouble::dead || are_all) return;
    blame_memory(verdict, traces, kills_before);
    const Error error = error_of(verdict);
    claim_verdict(flight, verdict);
    run.mark_failed(error);
    throw error;
}

}  // namespace

int explain_end(const LaunchedRun& run, const std::function<int()>& launch, const fs::path& root) {
    const fs::path before = run.newest_flight();
    const std::uint64_t kills_before = control_group_oom_kills(root);
    int code = 0;
    std::exception_ptr killed;
    try {
        code = launch();
    } catch (const Error&) {
        killed = std::current_exception();
    }
    const bool is_known = code == 0 || code == static_cast<int>(ExitCode::saved_please_requeue) ||
                          code == static_cast<int>(ExitCode::interrupted);
    if (!killed && is_known) return code;
    const fs::path flight = run.newest_flight();
    if (!flight.empty() && flight != before) {
        if (is_there(verdict_path(flight))) {
            // Its words went to a host that nobody hears any more.
            if (killed && is_unheard_verdict(flight, heard_within_s))
                throw error_of(*read_verdict(flight));
            return static_cast<int>(ExitCode::peer_lost);
        }
        name_the_dead(flight, run, kills_before);
    }
    // Before the ranks have a record, or of all of them at once.
    const std::string lack = killed ? lack_of_memory(kills_before, root) : "";
    if (!lack.empty())
        throw Error("E612", "the ranks ended: memory ran out", lack, fix_of_memory());
    if (killed) std::rethrow_exception(killed);
    return code;
}

}  // namespace lockstep
