// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the rank that all others wait for: a pure function of the ranks' flight records.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/rank_trace.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Problems, causes before consequences: diagnose() returns the first that applies.
enum class Trouble {
    none,
    order_mismatch,  ///< ranks call different collectives
    size_mismatch,   ///< ranks call the same ones with other sizes or types
    dead,            ///< the process is gone without an error
    failed,          ///< it ended with an error
    did_not_join,    ///< it never made a flight record
    stopped,         ///< SIGSTOP, a debugger, a suspended job
    exited_early,    ///< it ended normally, while others continue
    stuck_in_init,   ///< it has not finished set-up
    stuck_gpu,       ///< all hosts are in the same collective, and this rank's GPU delays it
    slow_rank,       ///< it lives, but does not reach the collective in which others wait
    network_slow,    ///< all are in the same collective, and it does not end
    no_progress,     ///< all compute, and no rank's phase ends
    ended,           ///< all ranks were ended from outside
};

/// Returns "rank dead", "slow rank", ... as tables and JSON show it.
std::string_view name_of(Trouble trouble);

/// The rank that others wait for, and the text about it.
struct Verdict {
    Trouble trouble = Trouble::none;  ///< the kind of problem
    std::vector<int> culprits{};      ///< in order; empty if no rank is more likely than others
    std::string what;                 ///< one sentence: rank, place, state
    std::string why;                  ///< state of the other ranks
    std::string fix;                  ///< what to do
    /// The rank that reports: the lowest that lives and is no culprit; -1: none. If no rank makes
    /// progress, the lowest.
    int speaker = -1;
    std::string speaker_host;  ///< empty if there is no speaker
    bool pauses = false;       ///< the culprit lives and writes a checkpoint or evaluates
};

/// Time without a heartbeat after which a rank on another node counts as dead.
inline constexpr double silence_s = 30;

/// The same, once its start is over.
inline constexpr double silence_after_end_s = 5;

/// Diagnoses `traces` in order of rank, at `now_s` (seconds since 1970). A wait shorter than
/// `patience_s` is not a problem; problems that waiting cannot solve are reported at once.
/// `silent_s`: see silence_s.
Verdict diagnose(std::span<const RankTrace> traces,
                 double now_s,
                 double patience_s,
                 double silent_s = silence_s);

/// Returns a text with the number of processes of this control group that the kernel's OOM killer
/// has ended since the start, when its count was `kills_before`; "" if none.
std::string lack_of_memory(std::uint64_t kills_before, const fs::path& root = "/");

/// Returns the remedy for lack of memory.
std::string fix_of_memory();

/// Adds lack of memory to a verdict on ranks of this node that ended without an error, if the
/// control group's count of OOM kills has grown since the start, when it was `kills_before`.
void blame_memory(Verdict& verdict,
                  std::span<const RankTrace> traces,
                  std::uint64_t kills_before,
                  const fs::path& root = "/");

/// Returns the ranks on other nodes that count as alive only because it is too early to call them
/// dead: none of their heartbeats is younger than 1.5 s. A heartbeat in the future is ignored, too.
std::vector<int> unheard_ranks(std::span<const RankTrace> traces, double now_s);

/// The position of a rank in its channel.
struct RankPosition {
    std::uint32_t channel = 0;        ///< number of the channel
    std::uint64_t finished = 0;       ///< the last seq that it finished; 0: none
    const FlightEntry* in = nullptr;  ///< the oldest that is enqueued and not ended
};

/// Returns the position in the channel of its oldest pending collective, else of its newest entry.
RankPosition position_of(const RankTrace& trace);

/// Returns the verdict as an error for users: E660, or E661 (mismatches).
Error error_of(const Verdict& verdict);

/// Returns `folder`/verdict.json.
fs::path verdict_path(const fs::path& folder);

/// Returns the form of verdict.json.
Json json_of(const Verdict& verdict);

/// Returns true if the caller is the first to give a verdict on the ranks that record in `folder`,
/// and so must show it. Also true if nothing can be written: better twice than never.
bool claim_verdict(const fs::path& folder, const Verdict& verdict);

/// Time in which a launcher that receives a verdict has ended all ranks.
inline constexpr double heard_within_s = 3;

/// Returns true if a verdict has ended no rank within `patience_s` and was printed on another node.
/// That node has lost the launcher, or the network. The caller must show it again: it is the first
/// of its host. Also true if nothing can be written.
bool claim_unheard_verdict(const fs::path& folder, double patience_s);

/// Reads the verdict that was given. Errors: E222 if the file is invalid.
std::optional<Verdict> read_verdict(const fs::path& folder);

}  // namespace lockstep
