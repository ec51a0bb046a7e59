// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rank keeps all others waiting: a pure function of the ranks' flight records.
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

/// Causes before consequences: diagnose() gives the first that holds.
enum class Trouble {
    none,
    order_mismatch,  ///< ranks call different collectives
    size_mismatch,   ///< the same ones with other sizes or types
    dead,            ///< the process is gone without a word
    failed,          ///< it ended with an error
    did_not_join,    ///< it never made a flight record
    stopped,         ///< SIGSTOP, a debugger, a suspended job
    exited_early,    ///< it ended as if all were well, while others go on
    stuck_in_init,   ///< it has not finished setting up
    stuck_gpu,       ///< all hosts are in the same collective, and this rank's GPU keeps them there
    slow_rank,       ///< it lives, but does not come to the collective that others wait in
    network_slow,    ///< all are in the same collective, and it does not end
    no_progress,     ///< all compute, and no rank's phase ends
    ended,           ///< all ranks were ended from outside
};

/// "rank dead", "slow rank", ... as tables and JSON show it.
std::string_view name_of(Trouble trouble);

/// Who keeps the others waiting, and what to say about it.
struct Verdict {
    Trouble trouble = Trouble::none;  ///< the kind
    std::vector<int> culprits;        ///< in order; empty if no rank is more likely than others
    std::string what;                 ///< one sentence: who, where, how
    std::string why;                  ///< what the others do
    std::string fix;                  ///< what to do
    /// The lowest rank that lives and is no culprit; -1: none. Of those that all make no progress
    /// the lowest.
    int speaker = -1;
    bool pauses = false;  ///< the culprit lives and writes a checkpoint or evaluates
};

/// After so long without a heartbeat a rank elsewhere counts as dead.
inline constexpr double silence_s = 30;

/// The same, once its start is over.
inline constexpr double silence_after_end_s = 5;

/// `traces` in order of rank, at `now_s` (seconds since 1970). A wait shorter than `patience_s` is
/// none; problems that waiting cannot solve are reported at once. `silent_s`: see silence_s.
Verdict diagnose(std::span<const RankTrace> traces,
                 double now_s,
                 double patience_s,
                 double silent_s = silence_s);

/// All is well if a rank elsewhere was heard of so recently.
inline constexpr double unheard_s = 1.5;

/// How many processes of this control group the kernel has ended for want of memory, if its count
/// was `kills_before` at the start; "" if none.
std::string lack_of_memory(std::uint64_t kills_before, const std::filesystem::path& root = "/");

/// What to do about it.
std::string fix_of_memory();

/// Says of ranks of this node that are gone without a word that memory ran out, if the control
/// group's count of processes that the kernel ended for it was `kills_before` at the start.
void blame_memory(Verdict& verdict,
                  std::span<const RankTrace> traces,
                  std::uint64_t kills_before,
                  const std::filesystem::path& root = "/");

/// Ranks elsewhere that count as alive only because it is too early to call them dead: no heartbeat
/// of theirs is younger than `unheard_s`. One in the future is ignored, too.
std::vector<int> unheard_ranks(std::span<const RankTrace> traces, double now_s);

/// The last seq of `channel` that the rank finished, and the one that it is in; 0: none.
struct RankPosition {
    std::uint32_t channel = 0;        ///< by number
    std::uint64_t finished = 0;       ///< the last seq that it finished; 0: none
    const FlightEntry* in = nullptr;  ///< enqueued and not ended, the oldest
};

/// In the channel of its oldest pending collective, else of its newest entry.
RankPosition position_of(const RankTrace& trace);

/// "in data wait", "in forward", "in communication", ...
std::string activity_text(const RankTrace& trace);

/// E660, E661 (mismatches): the verdict as users see it.
Error error_of(const Verdict& verdict);

/// `folder`/verdict.json
fs::path verdict_path(const fs::path& folder);

/// As verdict.json has it.
Json json_of(const Verdict& verdict);

/// Whether the caller is the first to give a verdict on the ranks that record in `folder`, and so
/// the one to show it. Also true if nothing can be written: better twice than never.
bool claim_verdict(const fs::path& folder, const Verdict& verdict);

/// A launcher that hears a verdict has ended all ranks so long after.
inline constexpr double heard_within_s = 3;

/// Whether a verdict has ended no rank within `patience_s` and was printed on another node:
/// that has lost the launcher, or the network, and somebody else must say it.
bool is_unheard_verdict(const fs::path& folder, double patience_s);

/// The verdict that was given. Errors: E222 if the file makes no sense.
std::optional<Verdict> read_verdict(const fs::path& folder);

}  // namespace lockstep
