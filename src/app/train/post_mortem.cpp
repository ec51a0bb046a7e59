// SPDX-License-Identifier: Apache-2.0
#include "train/post_mortem.hpp"

#include "lockstep/comm/verdict_file.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/run_directory.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr int lost = static_cast<int>(ExitCode::peer_lost);

// 0 for anything that is no run (yet).
std::int64_t incarnation_of(const fs::path& run) {
    try {
        return read_incarnation(run);
    } catch (const Error&) {
        return 0;
    }
}

// A run whose disk is gone keeps its state; the message is what matters.
void mark_failed(const fs::path& run, std::int64_t incarnation, const Error& error) {
    try {
        write_failed_state(
            run, incarnation, error.code() + ": " + error.what(), ExitCode::peer_lost);
    } catch (const Error&) {
    }
}

}  // namespace

PostMortem::PostMortem(std::filesystem::path run)
    : run_(std::move(run)), before_(incarnation_of(run_)) {}

int PostMortem::explain(const std::function<int()>& launch) const {
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
    if (ranks_have_spoken()) return lost;
    name_the_dead();
    if (killed) std::rethrow_exception(killed);
    return code;
}

bool PostMortem::ranks_have_spoken() const {
    const std::int64_t incarnation = incarnation_of(run_);
    std::error_code failed;
    return incarnation > before_ &&
           fs::exists(verdict_path(RunPaths{run_}.flight(incarnation)), failed);
}

// Where all ranks are gone without a word, their launcher was: nobody is to be named.
void PostMortem::name_the_dead() const {
    const std::int64_t incarnation = incarnation_of(run_);
    const fs::path folder = RunPaths{run_}.flight(incarnation);
    std::error_code failed;
    if (incarnation <= before_ || !fs::exists(folder, failed)) return;
    const auto traces = read_rank_traces(folder);
    const Verdict verdict = diagnose(traces, unix_time_s(), 0);
    if (verdict.trouble != Trouble::dead || verdict.culprits.size() == traces.size()) return;
    const Error error = error_of(verdict);
    claim_verdict(folder, verdict);
    mark_failed(run_, incarnation, error);
    throw error;
}

}  // namespace lockstep
