// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_status.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "runs/log_view.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::deque<std::string> last_words(const fs::path& run, std::int64_t start) {
    constexpr std::size_t most = 8;
    std::deque<std::string> last;
    const fs::path folder = RunPaths{run}.logs(start);
    if (!fs::is_directory(status_of(folder))) return last;
    LogText text{LogStyle{}};
    LogFold fold({}, [&](const FoldedLine& line) {
        text.append(last.emplace_back(), line, "    ");
        if (last.size() > most) last.pop_front();
    });
    LogMerge merge(folder, {.ranks = std::vector<int>{}, .with_launcher = true});
    while (const LogLine* const line = merge.next()) fold.add(*line);
    merge.take_last_words();
    while (const LogLine* const line = merge.next()) fold.add(*line);
    fold.finish();
    return last;
}

std::string under(const std::string& title, const std::deque<std::string>& lines) {
    std::string text = lines.empty() ? "" : title + "\n";
    for (const std::string& line : lines) text += line;
    return text;
}

/// The last lines of a launch after the newest start, `start`, whose ranks did not begin; "" where
/// there was none.
std::string words_of_launch_after(const RunStatus& status, std::int64_t start) {
    if (start < status.incarnation) return {};
    return under("a later launch, whose ranks did not begin, said last:",
                 last_words(status.root, start + 1));
}

/// The same, and of `start` itself where none of its ranks has a log.
std::string words_without_ranks(const RunStatus& status, std::int64_t start) {
    const bool is_told_by_ranks = !read_log_facts(RunPaths{status.root}.logs(start)).empty();
    const std::string own = is_told_by_ranks ? ""
                                             : under("  no rank has a log; the launcher said last:",
                                                     last_words(status.root, start));
    return own + words_of_launch_after(status, start);
}

constexpr const char* logs_help =
    R"(Merges the logs of all ranks of a start, RUN/logs/iN/rank-NNNNN.jsonl, in order of time. Times are
those of rank 0's clock; a run measures the offsets of the nodes' clocks when it starts. A line that
several ranks wrote is shown once, with the ranks in front: [0-7]. [all]: rank 0 wrote it for all.
[launcher]: mpirun, srun or a rank without an open log wrote it (RUN/logs/iN/launcher-HOST.jsonl).
It needs no rights in SLURM and no connection to the job, works while ranks write and after they
were killed, and needs little memory for logs of any length.

--first-error names the rank, its node and the cause: the first error that is not a consequence of
another rank's end. If the ranks wrote no error, as after kill -9, their flight records are used. In
a run without errors it names the rank that the others wait for, and why, as `lockstep report` does.
--diff-rank 3 shows only differences of rank 3: '+' lines that it alone wrote, '-' lines that most
others wrote and it did not. --follow prints new lines until the run ends, or until Ctrl-C.
--json prints one JSON object per line.

Examples:
  lockstep logs runs/a
  lockstep logs runs/a --first-error
  lockstep logs runs/a --rank 3,5-7 --level warn
  lockstep logs runs/a --node n2 --since 10m --follow
  lockstep logs runs/a --since 2026-01-31T12:30 --incarnation 2
)";

struct LogsOptions {
    std::string ranks, node, since;
    Level level = Level::debug;
    int diff_rank = -1;
    std::int64_t incarnation = 0;  // 0: the newest
    bool all_starts = false, follow = false, first_error = false, json = false;
};

Error unfit_rank(const std::string& given, std::span<const RankLogFacts> facts) {
    std::vector<int> known;
    for (const RankLogFacts& rank : facts) known.push_back(rank.rank);
    return Error("E102",
                 fmt::format("'{}' is no rank of this start", printable(given)),
                 known.empty() ? "no rank has begun its log" : "it has " + ranks_text(known),
                 "give ranks as in --rank 3,5-7");
}

bool has_rank(std::span<const RankLogFacts> facts, int rank) {
    return std::ranges::find(facts, rank, &RankLogFacts::rank) != facts.end();
}

std::vector<int> chosen_ranks(const std::string& given, std::span<const RankLogFacts> facts) {
    const auto ranks = parse_cpu_list(given);
    check(ranks && !ranks->empty(),
          "E103",
          fmt::format("--rank is '{}'", printable(given)),
          "it must be ranks, with commas and dashes between them",
          "for example --rank 3,5-7");
    for (const int rank : *ranks)
        check(has_rank(facts, rank), [&] { return unfit_rank(std::to_string(rank), facts); });
    return *ranks;
}

std::set<std::string> hosts_of(std::span<const RankLogFacts> facts) {
    std::set<std::string> hosts;
    for (const RankLogFacts& rank : facts)
        if (!rank.host.empty()) hosts.insert(rank.host);
    return hosts;
}

void check_node(const std::string& node, std::span<const RankLogFacts> facts) {
    const std::set<std::string> hosts = hosts_of(facts);
    check(node.empty() || hosts.contains(node), [&] {
        const std::vector<std::string> names(hosts.begin(), hosts.end());
        return Error("E103",
                     fmt::format("--node is '{}'", printable(node)),
                     fmt::format("the ranks of this start are on {}",
                                 plain_text(fmt::format("{}", fmt::join(names, ", ")))),
                     did_you_mean(node, names, "give one of these"));
    });
}

// A time of day, or how long ago; both by rank 0's clock, as all lines.
double since_s(const std::string& given, const RunClock& clock) {
    if (given.empty()) return LogChoice{}.since_s;
    if (const auto time_s = parse_utc(given)) return *time_s;
    try {
        double ago_s = 0;
        duration_option("since", ago_s, "").assign({given, "command line"});
        return clock.present_s(unix_time_s(), host_name(), 0) - ago_s;
    } catch (const Error&) {
        throw Error("E103",
                    fmt::format("--since is '{}'", printable(given)),
                    "it must be a time in UTC as the logs have it, or how long ago",
                    "for example --since 2026-01-31T12:30 or --since 10m");
    }
}

// The starts that are asked for, oldest first.
std::vector<std::int64_t> chosen_starts(const fs::path& run,
                                        std::int64_t newest,
                                        const LogsOptions& options) {
    if (newest == 0 && !last_words(run, 1).empty()) return {1};  // its launcher left some
    check(newest > 0,
          "E201",
          fmt::format("run '{}' has no logs yet", printable(run.string())),
          "none of its starts has begun a log",
          "see the output of its ranks or their launcher");
    check_start(options.incarnation, newest);
    if (!options.all_starts) return {options.incarnation > 0 ? options.incarnation : newest};
    std::vector<std::int64_t> starts;
    for (std::int64_t i = 1; i <= newest; ++i)
        if (fs::is_directory(status_of(RunPaths{run}.logs(i)))) starts.push_back(i);
    return starts;
}

void check_together(const LogsOptions& options) {
    const auto refuse = [](bool both, const std::string& names, const std::string& why) {
        check_fits(!both, names + " do not go together", why, "leave one of them out");
    };
    refuse(options.all_starts && options.incarnation > 0,
           "--all-starts and --incarnation",
           "one selects all starts, the other one start");
    refuse(options.follow && options.all_starts,
           "--follow and --all-starts",
           "only the newest start can write more");
    refuse(options.follow && options.diff_rank >= 0,
           "--follow and --diff-rank",
           "what a rank lacks is known only once it can no longer come");
    refuse(options.first_error && (options.follow || options.diff_rank >= 0 || options.all_starts),
           "--first-error and --follow, --diff-rank or --all-starts",
           "a cause is searched in one finished or current start");
    refuse(options.diff_rank >= 0 && !options.ranks.empty(),
           "--diff-rank and --rank",
           "a rank is compared with all others");
}

// "8 ranks on n1, n2 | clocks within 0.1 ms, corrected by up to 3.200 s"
std::string heading(const fs::path& run, std::int64_t start, std::span<const RankLogFacts> facts) {
    double correction_s = 0, error_s = 0;
    for (const RankLogFacts& rank : facts) {
        correction_s = std::max(correction_s, std::abs(rank.clock_ahead_s));
        error_s = std::max(error_s, rank.clock_error_s);
    }
    const std::set<std::string> hosts = hosts_of(facts);
    std::string text = fmt::format("{}, start {}: {} {}",
                                   plain_text(run.string()),
                                   start,
                                   facts.size(),
                                   facts.size() == 1 ? "rank" : "ranks");
    if (!hosts.empty() && hosts.size() <= 4)
        text += " on " + plain_text(fmt::format("{}", fmt::join(hosts, ", ")));
    else if (!hosts.empty())
        text += fmt::format(" on {} nodes", hosts.size());
    if (error_s > 0)
        text += fmt::format(
            " | clocks corrected by up to {:.3f} s, within {:.3f} ms", correction_s, error_s * 1e3);
    return text + "\n";
}

LogView view_of(const LogsOptions& options, std::span<const RankLogFacts> facts) {
    LogView view{.diff_rank = options.diff_rank, .is_json = options.json};
    if (!options.ranks.empty()) view.choice.ranks = chosen_ranks(options.ranks, facts);
    check_node(options.node, facts);
    check(options.diff_rank < 0 || has_rank(facts, options.diff_rank),
          [&] { return unfit_rank(std::to_string(options.diff_rank), facts); });
    view.choice.node = options.node;
    view.choice.with_launcher = options.ranks.empty();
    view.choice.least = options.level;
    view.choice.since_s = since_s(options.since, RunClock({facts.begin(), facts.end()}));
    view.style = {.ranks = facts.empty() ? 1 : facts.back().rank + 1,
                  .names_hosts = hosts_of(facts).size() > 1,
                  .colours = colours_of_stdout()};
    return view;
}

void show_start(const fs::path& run, std::int64_t start, const LogsOptions& options, Output& out) {
    const fs::path folder = RunPaths{run}.logs(start);
    const auto facts = read_log_facts(folder);
    LogView view = view_of(options, facts);
    const auto is_over = [&] {
        return read_incarnation(run) != start || !status_of_run(run, StatusDepth::now).is_alive();
    };
    view.is_over = is_over();
    if (!options.json) out.text += heading(run, start, facts);
    const std::uint64_t damaged =
        options.follow ? follow_logs(folder, view, is_over, out) : show_logs(folder, view, out);
    if (damaged > 0 && !options.json)
        out.text += fmt::format("{} damaged line(s) were skipped\n", damaged);
}

std::string next_lines(const RunStatus& status,
                       const std::string& next,
                       const std::string& resume) {
    const std::string lines = "next: " + next + "\n";
    if (resume.empty()) return lines;
    return fmt::format("{}{}: {}\n", lines, going_on_label(status), resume);
}

int show_first_error(const RunStatus& status,
                     std::int64_t start,
                     const LogsOptions& options,
                     const std::string& program) {
    const FirstError found = first_error(status, start);
    const std::string resume = resumption(status, start, program);
    if (!options.json) {
        print_once(first_error_text(status, start, found) + words_without_ranks(status, start) +
                   next_lines(status, found.next, resume));
        return 0;
    }
    Json json = json_of(found);
    json["start"] = start;
    json["next"] = found.next;
    if (!resume.empty()) json["resume"] = resume;
    print_once(json.dump() + "\n");
    return 0;
}

int show(const LogsOptions& options, const Invocation& call) {
    check_together(options);
    const fs::path run = call.positionals[0];
    const std::string& program = call.process.program.name;
    RunStatus status = status_of_run(run, StatusDepth::now);
    const auto starts = chosen_starts(run, status.incarnation, options);
    if (options.first_error) return show_first_error(status, starts.front(), options, program);
    const SignalGuard signals;
    Output out;
    for (const std::int64_t start : starts)
        if (!out.is_closed && stop_requested() == StopRequest::none)
            show_start(run, start, options, out);
    if (!options.json && options.ranks.empty())
        out.text += words_of_launch_after(status, starts.back());
    const bool is_stopped = stop_requested() != StopRequest::none;
    if (!is_stopped && !options.json) {
        status = status_of_run(run, StatusDepth::now);
        out.text += next_lines(status,
                               next_command(status, starts.back(), AlreadyTold::logs, {}),
                               resumption(status, starts.back(), program));
    }
    out.flush();
    return is_stopped ? static_cast<int>(ExitCode::interrupted) : 0;
}

OptionTable logs_table(LogsOptions& options) {
    return {
        {"Which lines",
         {text_option(
              "rank LIST", options.ranks, "ranks whose lines are shown, such as 3,5-7; unset: all"),
          text_option("node HOST", options.node, "show only lines of ranks on this host"),
          enum_option(
              "level debug|info|warn|error", options.level, "lowest level of lines that are shown"),
          text_option("since TIME|AGO",
                      options.since,
                      "show lines since then: 2026-01-31T12:30 (UTC), or 10m, 2h"),
          flag_option("all-starts",
                      options.all_starts,
                      "show the lines of all starts, one after the other")}},
        {"What to show",
         {flag_option("first-error",
                      options.first_error,
                      "show the first error, or else the slowest rank, with node and reason"),
          whole_option("diff-rank",
                       options.diff_rank,
                       {-1, 1'000'000'000},
                       "show only lines in which this rank differs from the others; -1: all lines"),
          flag_option("follow", options.follow, "keep printing new lines until the run ends")}},
        start_group(options.incarnation),
        json_group(options.json)};
}

}  // namespace

Command logs_command() {
    auto options = std::make_shared<LogsOptions>();
    return {.name = "logs",
            .summary = "read the logs of all ranks as one, and find the first error",
            .usage = "lockstep logs RUN [options]",
            .text = logs_help,
            .table = logs_table(*options),
            .positionals = 1,
            .run = [options](const Invocation& call) { return show(*options, call); }};
}

}  // namespace lockstep
