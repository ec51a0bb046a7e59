// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/verdict.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* diagnose_help =
    R"(Every rank records its collectives in RUN/logs/iN/flight. This command compares the records of all
ranks and names the rank that keeps the others waiting, and its last action. It works while a job
runs, after it ended, and after a rank was killed. Exit code 76 if something is wrong.

Examples:
  lockstep diagnose runs/a
  lockstep diagnose runs/a --incarnation 2 --json
)";

struct DiagnoseOptions {
    std::int64_t incarnation = 0;  // 0: the newest
    bool json = false;
};

std::string_view life_text(const RankTrace& trace) {
    if (trace.end == FlightEnd::finished) return "finished";
    if (trace.end == FlightEnd::failed) return "failed";
    constexpr std::string_view names[] = {
        "running", "stopped", "gone", "elsewhere", "silent", "cut off", "unanswering"};
    return names[static_cast<std::size_t>(trace.life)];
}

bool is_over(const RankTrace& trace) {
    return trace.end != FlightEnd::none || trace.life == Life::gone;
}

// Returns the time before now, or before the rank's last heartbeat if it has ended.
double age_s(const RankTrace& trace, double time_s, double now_s) {
    return std::max((is_over(trace) ? trace.heartbeat_s : now_s) - time_s, 0.0);
}

std::string channel_text(const RankTrace& trace, std::uint32_t channel) {
    return channel < trace.channels.size() ? trace.channels[channel] : "";
}

std::string number_text(const RankTrace& trace, std::uint32_t channel, std::uint64_t seq) {
    return seq == 0 ? "-" : fmt::format("{} #{}", channel_text(trace, channel), seq);
}

std::string row_text(const RankTrace& trace, double now_s) {
    if (!trace.damage.empty())
        return fmt::format("{:>4}  its record cannot be read: {}\n", trace.rank, trace.damage);
    const RankPosition at = position_of(trace);
    const std::string in =
        at.in == nullptr
            ? "-"
            : fmt::format(
                  "{} {}", number_text(trace, at.in->channel, at.in->seq), text_of(at.in->call));
    const double since_s = at.in == nullptr ? trace.phase_since_s : at.in->enqueued_s;
    return fmt::format("{:>4}  {:<12}  {:>8}  {:<9}  {:<10}  {:>15}  {:<40}  {:>7}\n",
                       trace.rank,
                       trace.host,
                       trace.pid,
                       life_text(trace),
                       phase_name(trace.phase),
                       number_text(trace, at.channel, at.finished),
                       in,
                       duration_text(age_s(trace, since_s, now_s)));
}

// Returns the meaning of a diagnosis for which no rule of diagnose() holds.
std::string calm_text(const Diagnosis& found) {
    const auto all = found.traces.size();
    const auto finished = std::ranges::count(found.traces, FlightEnd::finished, &RankTrace::end);
    if (static_cast<std::size_t>(finished) == all)
        return fmt::format("is over: {} finished", all == 1 ? "its rank" : "all its ranks");
    const auto unheard = unheard_ranks(found.traces, found.now_s);
    if (unheard.empty())
        return found.is_over ? "is over, and nothing was wrong" : "nothing is wrong";
    double heard_s = 0;
    for (const RankTrace& trace : found.traces)
        if (std::ranges::find(unheard, trace.rank) != unheard.end())
            heard_s = std::max(heard_s, trace.heartbeat_s);
    if (heard_s > found.now_s)
        return fmt::format(
            "nothing is known to be wrong, but this host's clock is {} behind that of {} on "
            "another host, so its signs of life cannot be judged",
            duration_text(heard_s - found.now_s),
            ranks_text(unheard));
    return fmt::format(
        "nothing is known to be wrong, but {} on another host has not answered for {}; after {} it "
        "counts as dead",
        ranks_text(unheard),
        duration_text(found.now_s - heard_s),
        duration_text(found.is_over ? silence_after_end_s : silence_s));
}

void show(const Diagnosis& found) {
    std::string table = fmt::format("{:>4}  {:<12}  {:>8}  {:<9}  {:<10}  {:>15}  {:<40}  {:>7}\n",
                                    "rank",
                                    "host",
                                    "pid",
                                    "state",
                                    "phase",
                                    "finished",
                                    "in",
                                    "since");
    for (const RankTrace& trace : found.traces) table += row_text(trace, found.now_s);
    const Verdict& verdict = found.verdict;
    if (verdict.trouble == Trouble::none) {
        table += fmt::format("incarnation {}: {}\n", found.incarnation, calm_text(found));
    } else {
        table += fmt::format(
            "incarnation {}: {}: {}\n", found.incarnation, name_of(verdict.trouble), verdict.what);
        if (!verdict.why.empty()) table += fmt::format("  why: {}\n", verdict.why);
        if (!verdict.fix.empty()) table += fmt::format("  fix: {}\n", verdict.fix);
    }
    print_once(table);
}

Json json_of(const RankTrace& trace, double now_s) {
    if (!trace.damage.empty()) return {{"rank", trace.rank}, {"damage", trace.damage}};
    const RankPosition at = position_of(trace);
    Json row = {{"rank", trace.rank},
                {"host", trace.host},
                {"pid", trace.pid},
                {"state", life_text(trace)},
                {"signal", trace.signal},
                {"phase", phase_name(trace.phase)},
                {"phase_s", age_s(trace, trace.phase_since_s, now_s)},
                {"heartbeat_s", now_s - trace.heartbeat_s},
                {"channel", channel_text(trace, at.channel)},
                {"finished", at.finished}};
    if (trace.end == FlightEnd::failed) row["exit"] = trace.exit_code;
    if (at.in != nullptr)
        row["in"] = {{"seq", at.in->seq},
                     {"call", text_of(at.in->call)},
                     {"bytes", at.in->call.bytes},
                     {"bucket", at.in->call.bucket},
                     {"waits", at.in->started_s > 0},
                     {"since_s", age_s(trace, at.in->enqueued_s, now_s)}};
    return row;
}

void show_json(const fs::path& run, const Diagnosis& found) {
    Json content = {{"run", run.string()}, {"incarnation", found.incarnation}};
    content["verdict"] = json_of(found.verdict);
    content["over"] = found.is_over;
    content["unheard"] = unheard_ranks(found.traces, found.now_s);
    content["ranks"] = Json::array();
    for (const RankTrace& trace : found.traces)
        content["ranks"].push_back(json_of(trace, found.now_s));
    print_once(content.dump(2) + "\n");
}

int run_diagnose(const DiagnoseOptions& options, const Invocation& call) {
    const fs::path run = call.positionals[0];
    const Diagnosis found = diagnosis_of(run, options.incarnation);
    if (options.json)
        show_json(run, found);
    else
        show(found);
    const bool is_fine =
        found.verdict.trouble == Trouble::none || found.verdict.trouble == Trouble::ended;
    return is_fine ? 0 : static_cast<int>(ExitCode::peer_lost);
}

}  // namespace

Command diagnose_command() {
    auto options = std::make_shared<DiagnoseOptions>();
    return {.name = "diagnose",
            .summary = "show which rank keeps a run waiting, or was lost",
            .usage = "lockstep diagnose RUN [--incarnation N] [--json]",
            .text = diagnose_help,
            .table = {start_group(options->incarnation), json_group(options->json)},
            .positionals = 1,
            .run = [options](const Invocation& call) { return run_diagnose(*options, call); }};
}

}  // namespace lockstep
