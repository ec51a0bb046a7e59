// SPDX-License-Identifier: Apache-2.0
// Finds the cause when all ranks wait. Each rank alone sees only that it waits. Together their
// rings show it: collectives have the same numbers on all ranks, so the others wait for the rank
// that has not announced the number in which they are.
//
//     rank 0   #811 ended  #812 ended  #813 pending 41 s
//     rank 1   #811 ended  #812 ended  #813 pending 41 s
//     rank 2   #811 ended  #812 ended                      in data wait   <- late: the culprit
//
// But lateness is often itself a consequence: of a death, a stop, another order of calls. So rules
// are applied in the order of causes, and the first that holds is the verdict:
//
//     mismatch > dead > failed > unanswering > did not join > stopped
//              > exited early > stuck in init, stuck GPU or slow > no progress > ended from outside
//
// It asks nothing of the ranks, and uses no clock but `now_s`: it is a pure function of traces, the
// same for a watchdog during a hang and for `lockstep diagnose` a day later. Ranks that evaluate it
// over the same files agree on the speaker without a message.
//
// What must never happen:
// - Those who gave up (exit code 76) are blamed for what made them give up: gave_up().
// - The ranks that a launcher killed after the first death are blamed for it: a signal that a
//   handler saw is no silent death; where none was seen, the heartbeat that ended first counts
//   (silent_first).
// - A wait shorter than `patience_s` is called a hang. Deaths, failures and mismatches need no
//   patience.
//
// Tested: run/flight/verdict_test.cpp, a scene for each rule and one property over random worlds;
// with real ranks run/flight/watchdog_test.cpp.

#include "lockstep/run/verdict.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"

#include "flight/scene.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::string_view trouble_names[] = {"none",
                                              "order mismatch",
                                              "size mismatch",
                                              "rank dead",
                                              "rank failed",
                                              "rank did not join",
                                              "rank stopped",
                                              "exited early",
                                              "stuck in init",
                                              "stuck GPU",
                                              "slow rank",
                                              "network slow",
                                              "no progress",
                                              "ended from outside"};

constexpr const char* resume_fix =
    "start the same command again: it resumes from the newest checkpoint, if there is one";

constexpr const char* disk_fix =
    "check the file system of the run's folder, which does not take the checkpoint (ls, df, the "
    "file server); the checkpoints before are whole, and the same command goes on from the newest";

bool saves(const RankTrace& trace) {
    return trace.is_running && trace.phase == Phase::checkpoint;
}

bool gave_up(const RankTrace& trace) {
    return trace.end == FlightEnd::failed &&
           trace.exit_code == static_cast<int>(ExitCode::peer_lost);
}

std::string is_or_are(const Traces& traces) {
    return traces.size() == 1 ? "is" : "are";
}

/// Returns the state of the others, and the places of the first few culprits.
std::string why_text(const Scene& scene, const Traces& culprits) {
    constexpr std::size_t most_shown = 4;
    const bool others_wait = std::ranges::any_of(scene.waiting.ranks, [&](const RankTrace* trace) {
        return std::ranges::find(culprits, trace) == culprits.end();
    });
    std::string text = others_wait ? scene.waiting_text() : "";
    for (std::size_t i = 0; i < culprits.size() && i < most_shown; ++i)
        text += (text.empty() ? "" : "; ") + scene.whereabouts_text(*culprits[i]);
    if (culprits.size() > most_shown)
        text += fmt::format("; and {} more", culprits.size() - most_shown);
    return text;
}

Verdict blaming(const Scene& scene,
                Trouble trouble,
                const Traces& culprits,
                std::string what,
                std::string fix = resume_fix) {
    return {.trouble = trouble,
            .culprits = numbers_of(culprits),
            .what = std::move(what),
            .why = why_text(scene, culprits),
            .fix = std::move(fix)};
}

Verdict mismatch(const Scene& scene, double) {
    const auto found = find_mismatch(scene);
    if (!found) return {};
    const auto call_text = [](const FlightCall& call) {
        return fmt::format("{} of {} x float", text_of(call), call.bytes / sizeof(float));
    };
    return {.trouble = found->is_order() ? Trouble::order_mismatch : Trouble::size_mismatch,
            .culprits = numbers_of(found->culprits),
            .what = fmt::format("{} {} {} as {}, where {} {} {}",
                                ranks_text(found->culprits),
                                found->culprits.size() == 1 ? "calls" : "call",
                                call_text(found->other),
                                scene.number_text(found->channel, found->seq),
                                ranks_text(numbers_of(found->rest)),
                                found->rest.size() == 1 ? "calls" : "call",
                                call_text(found->usual)),
            .why = "collectives work only if every rank calls the same ones in the same order",
            .fix =
                "this is a mistake in the program, or ranks run different ones: compare what "
                "they do before that call"};
}

/// All were killed at once: those whose heartbeat ended clearly before the others', if any.
Traces silent_first(const Scene& scene, const Traces& gone) {
    constexpr double clearly_s = 3;
    double newest = 0;
    for (const RankTrace* trace : scene.traces) newest = std::max(newest, trace->heartbeat_s);
    Traces earlier = gone;
    std::erase_if(earlier,
                  [&](const RankTrace* t) { return newest - t->heartbeat_s <= clearly_s; });
    return earlier.empty() ? gone : earlier;
}

/// "rank 7 (node03, pid 4711)", "ranks 4-7 (node03)": machines die with all their ranks.
std::string placed_text(const Traces& traces) {
    if (traces.size() == 1) return ranks_text(traces);
    std::vector<std::string> hosts;
    for (const RankTrace* trace : traces)
        if (std::ranges::find(hosts, trace->host) == hosts.end()) hosts.push_back(trace->host);
    constexpr std::size_t most_named = 4;
    const std::string rest =
        hosts.size() > most_named ? fmt::format(" and {} more", hosts.size() - most_named) : "";
    hosts.resize(std::min(hosts.size(), most_named));
    return fmt::format("{} ({}{})", ranks_text(traces), fmt::join(hosts, ", "), rest);
}

Verdict crash_verdict(const Scene& scene, const Traces& crashed) {
    const int signal = crashed.front()->signal;
    return blaming(
        scene,
        Trouble::dead,
        crashed,
        fmt::format(
            "{} crashed with signal {} ({})", placed_text(crashed), signal, ::strsignal(signal)),
        std::string("its last lines are its stack under mpirun, which names the library; ") +
            resume_fix);
}

Verdict dead(const Scene& scene, double) {
    Traces gone = scene.where([&](const RankTrace& t) { return scene.is_gone_silently(t); });
    if (gone.empty()) return {};
    Traces crashed = gone;
    std::erase_if(crashed, [](const RankTrace* t) { return !is_crash(t->signal); });
    if (!crashed.empty()) return crash_verdict(scene, crashed);
    const bool all = gone.size() == scene.traces.size();
    if (all && gone.size() > 1) gone = silent_first(scene, gone);
    if (gone.front()->life == Life::cut_off)
        return blaming(scene,
                       Trouble::dead,
                       gone,
                       fmt::format("{} {} cut off: a network link of {} node is down",
                                   placed_text(gone),
                                   is_or_are(gone),
                                   gone.size() == 1 ? "its" : "their"),
                       "check that node's cable, port and switch; " + std::string(resume_fix));
    const bool is_known = gone.front()->life == Life::gone;
    std::string what = fmt::format("{} {} gone without a word", placed_text(gone), is_or_are(gone));
    if (!is_known)
        what = fmt::format("{} {} given no sign of life for {}",
                           placed_text(gone),
                           gone.size() == 1 ? "has" : "have",
                           duration_text(scene.heartbeat_age_s(*gone.front())));
    Verdict verdict = blaming(scene, Trouble::dead, gone, what);
    verdict.why += fmt::format(
        "{}likely it was killed (kill -9, or by the kernel because memory ran out: see dmesg){}, "
        "or a library ended it",
        verdict.why.empty() ? "" : "; ",
        is_known ? "" : ", was stopped, or its node is down");
    return verdict;
}

Verdict failed(const Scene& scene, double) {
    const Traces found =
        scene.where([](const RankTrace& t) { return t.end == FlightEnd::failed && !gave_up(t); });
    if (found.empty()) return {};
    return blaming(
        scene,
        Trouble::failed,
        found,
        fmt::format(
            "{} ended with an error (exit code {})", ranks_text(found), found.front()->exit_code),
        "its own log says which error");
}

// A firewall or a broken switch: both nodes are well, and do not hear each other.
Verdict unanswering(const Scene& scene, double) {
    const Traces found =
        scene.where([](const RankTrace& t) { return t.life == Life::unanswering; });
    if (found.empty()) return {};
    const RankTrace& first = *found.front();
    return {.trouble = Trouble::network_slow,
            .culprits = numbers_of(found),
            .what = fmt::format("nothing gets through between nodes {} and {}: {} ({}) has not "
                                "answered for {}",
                                first.asked_by,
                                first.host,
                                first.host,
                                ranks_text(numbers_of(found)),
                                duration_text(first.unanswered_s)),
            .why = scene.waiting_text() + "; both nodes are alive",
            .fix = "check firewalls, switches and cables between these nodes; " +
                   std::string(resume_fix)};
}

Verdict did_not_join(const Scene& scene, double patience_s) {
    if (scene.missing.empty()) return {};
    const bool waits = scene.waiting.seq != 0 && scene.waiting.longest_s >= patience_s;
    const Traces alive = scene.where([&](const RankTrace& t) { return scene.is_alive(t); });
    if (!waits && !alive.empty()) return {};
    return {.trouble = Trouble::did_not_join,
            .culprits = scene.missing,
            .what = fmt::format("{} did not join", ranks_text(scene.missing)),
            .why = scene.waiting_text(),
            .fix =
                "check the launcher's output: was the rank started, and does its node see the run "
                "directory?"};
}

Verdict stopped(const Scene& scene, double) {
    const Traces found = scene.where([](const RankTrace& t) { return t.life == Life::stopped; });
    if (found.empty()) return {};
    return blaming(scene,
                   Trouble::stopped,
                   found,
                   fmt::format("{} {} stopped (state T)", ranks_text(found), is_or_are(found)),
                   "a debugger, Ctrl-Z, kill -STOP or a suspended job did it; kill -CONT wakes it");
}

bool is_late(const Scene& scene, const RankTrace& trace) {
    return scene.last_enqueued(trace) < scene.waiting.seq;
}

Verdict exited_early(const Scene& scene, double) {
    const Traces found = scene.where(
        [&](const RankTrace& t) { return t.end == FlightEnd::finished && is_late(scene, t); });
    if (found.empty()) return {};
    return blaming(scene,
                   Trouble::exited_early,
                   found,
                   fmt::format("{} ended before the others, without an error", ranks_text(found)));
}

Traces late_ranks(const Scene& scene) {
    Traces late = scene.where([&](const RankTrace& t) { return is_late(scene, t); });
    const auto in_init = [](const RankTrace* t) { return !t->is_running; };
    if (std::ranges::any_of(late, in_init)) std::erase_if(late, std::not_fn(in_init));
    return late;
}

/// Those who have announced the collective and do something else.
Traces absent_ranks(const Scene& scene) {
    return scene.where([&](const RankTrace& t) {
        const bool is_waiting =
            std::ranges::find(scene.waiting.ranks, &t) != scene.waiting.ranks.end();
        return !is_waiting && scene.last_finished(t) < scene.waiting.seq;
    });
}

/// Those who have done their part of the oldest collective may wait further on.
Verdict network_slow(const Scene& scene) {
    const Waiting& waiting = scene.waiting;
    const bool are_all = waiting.ranks.size() == scene.traces.size();
    const Traces ahead = scene.where([&](const RankTrace& t) {
        return std::ranges::find(waiting.ranks, &t) == waiting.ranks.end();
    });
    const std::string who =
        are_all ? "all ranks are" : ranks_text(waiting.ranks) + " " + is_or_are(waiting.ranks);
    return {
        .trouble = Trouble::network_slow,
        .what = fmt::format("{} in {} {} since {}, and it does not end",
                            who,
                            scene.number_text(waiting.channel, waiting.seq),
                            text_of(waiting.call),
                            duration_text(waiting.longest_s)),
        .why = fmt::format("{}the network is slow or broken, or MPI is stuck; no rank stands out",
                           are_all ? ""
                                   : fmt::format("{} {} done with that and further on; ",
                                                 ranks_text(numbers_of(ahead)),
                                                 is_or_are(ahead))),
        .fix = "check links and switches between the nodes; --comm-timeout gives more time"};
}

Verdict slow(const Scene& scene, double) {
    Traces late = late_ranks(scene);
    if (late.empty())
        if (Verdict verdict = gpu_verdict(scene); verdict.trouble != Trouble::none) return verdict;
    if (late.empty()) late = absent_ranks(scene);
    if (late.empty()) return network_slow(scene);
    const RankTrace& first = *late.front();
    const bool in_init = !first.is_running && scene.last_enqueued(first) == 0;
    Verdict verdict =
        blaming(scene,
                in_init ? Trouble::stuck_in_init : Trouble::slow_rank,
                late,
                fmt::format("{} {} not come to {} {}",
                            ranks_text(late),
                            late.size() == 1 ? "has" : "have",
                            scene.number_text(scene.waiting.channel, scene.waiting.seq),
                            text_of(scene.waiting.call)));
    if (std::ranges::all_of(late, [](const RankTrace* t) { return saves(*t); }))
        verdict.fix = disk_fix;
    verdict.pauses = std::ranges::all_of(
        late, [&](const RankTrace* t) { return scene.is_alive(*t) && may_be_long(t->phase); });
    return verdict;
}

Verdict waiting(const Scene& scene, double patience_s) {
    if (scene.waiting.seq == 0 || scene.waiting.longest_s < patience_s) return {};
    const Verdict early = exited_early(scene, patience_s);
    return early.trouble != Trouble::none ? early : slow(scene, patience_s);
}

/// Returns the longest time of a phase of computing: half of the time-out (warn_s is a tenth of
/// it), four times as long during set-up and for a save, and no longer once the rank was asked to
/// stop: then a save has a twentieth of the time-out.
double longest_phase_s(const RankTrace& trace, double patience_s) {
    const double usual_s = 5 * trace.warn_s * (trace.is_running && !saves(trace) ? 1 : 4);
    const double asked_s = saves(trace) ? trace.warn_s / 2 : 0.5;
    return std::max(patience_s, trace.signal != 0 ? asked_s : usual_s);
}

bool sets_itself_up(const RankTrace& trace) {
    return !trace.is_running && trace.phase == Phase::other;
}

/// Since when the rank is at the same pass, update, or part of its set-up.
double at_it_since_s(const RankTrace& trace) {
    double since_s = trace.phase_since_s;
    if (sets_itself_up(trace))
        for (const FlightEntry& entry : trace.entries) since_s = std::max(since_s, entry.ended_s);
    return since_s;
}

// A model that loops or waits for ever, or a disk that never answers, on all ranks: nobody waits in
// a collective.
Verdict no_progress(const Scene& scene, double patience_s) {
    const Traces& all = scene.traces;
    if (scene.waiting.seq != 0 || !scene.missing.empty()) return {};
    double least_s = std::numeric_limits<double>::max();
    for (const RankTrace* trace : all) {
        if (gave_up(*trace)) continue;  // on the same verdict, a moment earlier
        const bool works = is_computing(trace->phase) || sets_itself_up(*trace) || saves(*trace);
        if (!scene.is_alive(*trace) || !works) return {};
        const double age_s = scene.seen_until_s(*trace) - at_it_since_s(*trace);
        if (age_s < longest_phase_s(*trace, patience_s)) return {};
        least_s = std::min(least_s, age_s);
    }
    if (least_s == std::numeric_limits<double>::max()) return {};
    const bool is_set_up =
        std::ranges::all_of(all, [](const RankTrace* trace) { return sets_itself_up(*trace); });
    const std::string who = all.size() == 1 ? rank_text(*all.front()) + " has not" : "no rank has";
    const std::string what =
        fmt::format("{} {} for {}",
                    who,
                    is_set_up ? "come further in its set-up" : "finished a phase",
                    duration_text(least_s));
    const bool are_saving =
        std::ranges::any_of(all, [](const RankTrace* trace) { return saves(*trace); });
    const char* const fix =
        are_saving
            ? disk_fix
            : "the model, or a library that it uses, loops or waits for ever: check it; if it may "
              "take so long, give --comm-timeout more time";
    return blaming(scene, Trouble::no_progress, all, what, fix);
}

Verdict ended(const Scene& scene, double) {
    const Traces found = scene.where(
        [&](const RankTrace& t) { return scene.is_gone(t) && t.end == FlightEnd::none; });
    if (found.empty() || found.size() < scene.traces.size()) return {};
    const int signal = found.front()->signal;
    return {.trouble = Trouble::ended,
            .what = fmt::format("all ranks were ended by signal {}", signal),
            .why = "the launcher, the batch system or somebody sent it",
            .fix = resume_fix};
}

void choose_speaker(const Scene& scene, Verdict& verdict) {
    const std::vector<int>& culprits = verdict.culprits;
    const bool is_culprit_chosen = verdict.trouble == Trouble::no_progress;
    for (const RankTrace* trace : scene.traces) {
        const bool is_culprit = std::ranges::find(culprits, trace->rank) != culprits.end();
        const bool can_speak = scene.is_alive(*trace) && trace->life != Life::unanswering;
        if (is_culprit != is_culprit_chosen || (!is_culprit && !can_speak)) continue;
        verdict.speaker = trace->rank;
        verdict.speaker_host = trace->host;
        return;
    }
}

}  // namespace

std::string_view name_of(Trouble trouble) {
    return trouble_names[static_cast<std::size_t>(trouble)];
}

Verdict diagnose(std::span<const RankTrace> traces,
                 double now_s,
                 double patience_s,
                 double silent_s) {
    const Scene scene(traces, now_s, silent_s);
    using Rule = Verdict (*)(const Scene&, double);
    constexpr std::array<Rule, 9> rules = {
        mismatch, dead, failed, unanswering, did_not_join, stopped, waiting, no_progress, ended};
    Verdict verdict;
    for (const Rule rule : rules) {
        verdict = rule(scene, patience_s);
        if (verdict.trouble != Trouble::none) break;
    }
    choose_speaker(scene, verdict);
    return verdict;
}

std::vector<int> unheard_ranks(std::span<const RankTrace> traces, double now_s) {
    constexpr double unheard_s = 1.5;
    std::vector<int> ranks;
    for (const RankTrace& trace : traces)
        if (trace.damage.empty() && trace.life == Life::elsewhere && trace.end == FlightEnd::none &&
            std::abs(now_s - trace.heartbeat_s) > unheard_s)
            ranks.push_back(trace.rank);
    return ranks;
}

std::string lack_of_memory(std::uint64_t kills_before, const fs::path& root) {
    const MemoryEnd end = control_group_memory_end(root);
    if (end.kills <= kills_before) return {};
    return fmt::format(
        "since the start the kernel has ended {} process(es) for it{}{}",
        end.kills - kills_before,
        end.limit ? fmt::format("; the control group allows {}", bytes_text(*end.limit)) : "",
        end.peak ? fmt::format(" and used {} at most", bytes_text(*end.peak)) : "");
}

std::string fix_of_memory() {
    return "ask for more memory (sbatch --mem), or use less: fewer ranks on the node, a smaller "
           "--batch or --data-memory";
}

void blame_memory(Verdict& verdict,
                  std::span<const RankTrace> traces,
                  std::uint64_t kills_before,
                  const fs::path& root) {
    const std::string why = lack_of_memory(kills_before, root);
    const bool is_here = std::ranges::any_of(traces, [&](const RankTrace& trace) {
        return trace.life == Life::gone && trace.signal == 0 &&
               std::ranges::count(verdict.culprits, trace.rank) > 0;
    });
    if (verdict.trouble != Trouble::dead || !is_here || why.empty()) return;
    verdict.what += ": memory ran out";
    verdict.why = why;
    verdict.fix = fix_of_memory();
}

Error error_of(const Verdict& verdict) {
    const bool is_mismatch =
        verdict.trouble == Trouble::order_mismatch || verdict.trouble == Trouble::size_mismatch;
    return Error(is_mismatch ? "E661" : "E660", verdict.what, verdict.why, verdict.fix);
}

}  // namespace lockstep
