// SPDX-License-Identifier: Apache-2.0
// Traces are files in Chrome's JSON format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/tensor_files.hpp"
#include "lockstep/run/trace.hpp"

#include "trace/gzip.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_text = std::size_t{64} << 20;  // StepTrace::most_slices are some 20 MiB
constexpr std::size_t most_line = std::size_t{64} << 10;
constexpr std::string_view events_key = "\"traceEvents\": [\n";

/// The lane of its rank in which a slice is drawn.
std::string lane_of(const TraceSlice& slice) {
    if (slice.kind != SliceKind::collective) return "steps";
    return slice.bucket >= 0 ? fmt::format("bucket {}", slice.bucket) : slice.name;
}

/// Slices in the trace's order, by their lane's place and name: see lane_of().
using Lanes = std::map<std::pair<std::int64_t, std::string>, std::vector<const TraceSlice*>>;

/// Steps first, then collectives by bucket, then the other collectives. They borrow from `trace`.
Lanes lanes_of(const StepTrace& trace) {
    Lanes lanes;
    for (const TraceSlice& slice : trace.slices) {
        const std::int64_t place = slice.kind != SliceKind::collective ? -1
                                   : slice.bucket >= 0                 ? slice.bucket
                                                                       : std::int64_t{1} << 32;
        lanes[{place, lane_of(slice)}].push_back(&slice);
    }
    return lanes;
}

constexpr std::int64_t quarter_ns = 250;

/// Microseconds, to a quarter: floating-point numbers between 2^50 and 2^51, as those since 1970
/// are, hold these exactly, so that what lies within something else does so for every reader.
std::string micros(std::int64_t ns) {
    const std::int64_t quarters = (ns + quarter_ns / 2) / quarter_ns;
    return fmt::format("{}.{:02}", quarters / 4, quarters % 4 * 25);
}

std::int64_t rounded(std::int64_t ns) {
    return (ns + quarter_ns / 2) / quarter_ns * quarter_ns;
}

std::string args_of(const TraceSlice& slice) {
    std::string args = fmt::format(R"({{"step":{})", slice.step);
    if (slice.kind == SliceKind::collective)
        args += fmt::format(R"(,"channel":{},"seq":{},"bucket":{},"bytes":{},"waited_us":{})",
                            slice.channel,
                            slice.seq,
                            slice.bucket,
                            slice.bytes,
                            micros(slice.waited_ns));
    return args + "}";
}

std::string name_event(std::string_view what,
                       std::int64_t pid,
                       std::int64_t thread,
                       const std::string& name) {
    return fmt::format("{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{}}},\n",
                       what,
                       pid,
                       thread,
                       Json(std::map<std::string, std::string>{{"name", name}}).dump());
}

std::string slice_event(const TraceSlice& slice,
                        std::int64_t pid,
                        std::int64_t thread,
                        std::int64_t ahead_ns) {
    const std::int64_t begin_ns = slice.begin_ns - ahead_ns, end_ns = slice.end_ns - ahead_ns;
    // Names that Kineto uses; HTA takes steps from the first.
    constexpr std::string_view categories[] = {"user_annotation", "cpu_op", "collective"};
    return fmt::format(
        "{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},"
        "\"args\":{}}},\n",
        categories[static_cast<std::size_t>(slice.kind)],
        Json(slice.name).dump(),
        pid,
        thread,
        micros(begin_ns),
        micros(rounded(end_ns) - rounded(begin_ns)),
        args_of(slice));
}

/// An end of the arrow that leads from a collective on rank `from` to the next rank.
std::string arrow_event(std::string_view end,
                        const TraceSlice& slice,
                        int from,
                        std::int64_t pid,
                        std::int64_t thread,
                        std::int64_t time_ns) {
    return fmt::format(
        "{{\"ph\":{},\"cat\":\"collective\",\"name\":\"same "
        "collective\",\"id\":\"{}.{}.{}\",\"pid\":{},\"tid\":{},\"ts\":{}}},\n",
        end,
        slice.channel,
        slice.seq,
        from,
        pid,
        thread,
        micros(time_ns));
}

/// It leaves where the collective begins and arrives where it ends on the next rank, so never
/// earlier than it left: a collective ends when all ranks have begun it.
std::string arrows(const TraceSlice& slice,
                   const StepTrace& trace,
                   std::int64_t pid,
                   std::int64_t thread,
                   std::int64_t ahead_ns) {
    std::string text;
    if (trace.rank + 1 < trace.ranks)
        text += arrow_event("\"s\"", slice, trace.rank, pid, thread, slice.begin_ns - ahead_ns);
    if (trace.rank > 0)
        text += arrow_event("\"f\",\"bp\":\"e\"",
                            slice,
                            trace.rank - 1,
                            pid,
                            thread,
                            std::max(slice.begin_ns, slice.end_ns - quarter_ns) - ahead_ns);
    return text;
}

/// Slices of a lane, outer ones before those within them: readers nest them in this order.
bool begins_before(const TraceSlice* a, const TraceSlice* b) {
    return std::tie(a->begin_ns, b->end_ns, a->kind) < std::tie(b->begin_ns, a->end_ns, b->kind);
}

/// A rank's own file, or one of all ranks.
enum class TraceFile { own, merged };

/// The events of one rank, one per line with a comma at its end: names of process and lanes, and
/// slices, with `ahead_ns` subtracted from the times. In its own file the process is the rank's, as
/// in Kineto's files. In that of all ranks a rank is a process, and arrows lead from each
/// collective to the same one on the next rank. Process 0 is the idle one to Perfetto. It shows the
/// thread first that has its process' number, and takes threads of one number for the same thread:
/// steps are that one, and numbers are unique.
std::string events_of(const StepTrace& trace, TraceFile file, std::int64_t ahead_ns) {
    constexpr int lane_bits = 24;  // more than ranks
    const bool is_merged = file == TraceFile::merged;
    const std::int64_t pid = is_merged ? std::int64_t{trace.rank} + 1 : trace.pid;
    std::string names = name_event("process_name", pid, 0, name_of(trace)), events;
    std::int64_t lane = 0;
    for (auto& [place, slices] : lanes_of(trace)) {
        const std::int64_t thread = is_merged ? lane << lane_bits | pid : lane + 1;
        ++lane;
        names += name_event("thread_name", pid, thread, place.second);
        if (is_merged) std::ranges::stable_sort(slices, begins_before);
        for (const TraceSlice* slice : slices) {
            events += slice_event(*slice, pid, thread, ahead_ns);
            if (is_merged && slice->kind == SliceKind::collective)
                events += arrows(*slice, trace, pid, thread, ahead_ns);
        }
    }
    names += events;
    names.resize(names.size() - 2);  // the last comma
    return names;
}

/// Returns the head that HTA requires (`"rank": N` with a space), and that Kineto's readers expect.
std::string head_of(const StepTrace& trace) {
    return fmt::format(
        "{{\"schemaVersion\": 1,\n\"deviceProperties\": [],\n"
        "\"distributedInfo\": {{\"backend\": \"mpi\", \"rank\": {}, \"world_size\": {}}},\n"
        "\"lockstep\": {{\"host\": {}, \"pid\": {}, \"steps\": \"{}\", \"dropped\": {}}},\n"
        "\"displayTimeUnit\": \"ms\",\n{}",
        trace.rank,
        trace.ranks,
        Json(trace.host).dump(),
        trace.pid,
        trace_steps_text(trace.steps),
        trace.dropped,
        events_key);
}

Error out_of_range(std::string_view what, double value) {
    return Error("E222", fmt::format("{} is {:g}", what, value));
}

/// Converts whole quarters of a microsecond: nanoseconds since 1970 are no floating-point numbers.
std::int64_t nanoseconds(const Json& micros) {
    constexpr double most = 9e15;  // the year 2255
    const double value = micros.get<double>();
    check(std::abs(value) <= most, [&] { return out_of_range("a time", value); });
    return std::llround(value * 4) * 250;
}

SliceKind kind_of(const std::string& category) {
    if (category == "user_annotation") return SliceKind::step;
    return category == "collective" ? SliceKind::collective : SliceKind::phase;
}

TraceSlice slice_in(const Json& event) {
    const Json& args = event.at("args");
    TraceSlice slice{.kind = kind_of(event.at("cat").get<std::string>()),
                     .name = event.at("name").get<std::string>(),
                     .step = args.at("step").get<std::int64_t>(),
                     .begin_ns = nanoseconds(event.at("ts"))};
    slice.end_ns = slice.begin_ns + std::max<std::int64_t>(nanoseconds(event.at("dur")), 0);
    if (slice.kind != SliceKind::collective) return slice;
    slice.channel = args.at("channel").get<std::uint32_t>();
    slice.seq = args.at("seq").get<std::uint64_t>();
    slice.bucket = args.at("bucket").get<std::int32_t>();
    slice.bytes = args.at("bytes").get<std::uint64_t>();
    slice.waited_ns = nanoseconds(args.at("waited_us"));
    return slice;
}

StepTrace head_in(const Json& text) {
    const Json& who = text.at("distributedInfo");
    const Json& own = text.at("lockstep");
    StepTrace trace{.rank = who.at("rank").get<int>(),
                    .ranks = who.at("world_size").get<int>(),
                    .host = own.at("host").get<std::string>(),
                    .pid = own.at("pid").get<std::int64_t>(),
                    .steps = parse_trace_steps({own.at("steps").get<std::string>(), "trace"}),
                    .dropped = own.at("dropped").get<std::int64_t>()};
    constexpr int most_ranks = 1 << 24;
    check(trace.rank >= 0 && trace.rank < trace.ranks && trace.ranks <= most_ranks,
          [&] { return out_of_range("the number of ranks", trace.ranks); });
    return trace;
}

/// Event by event, each on a line of its own: a tree of all of them would be ten times the text.
StepTrace trace_in(std::string_view text, const std::string& file) {
    const std::size_t head = text.find(events_key);
    check(head < most_line, [&] { return Error("E222", "it has no events"); });
    StepTrace trace = head_in(parse_json(std::string(text.substr(0, head)) + "\"\":0}", file));
    text.remove_prefix(head + events_key.size());
    while (!text.starts_with("]}")) {
        const std::size_t end = text.find('\n');
        check(end < most_line, [&] { return Error("E222", "its lines are not events"); });
        std::string_view event = text.substr(0, end);
        if (event.ends_with(',')) event.remove_suffix(1);
        const Json json = parse_json(std::string(event), file);
        if (json.at("ph").get<std::string>() == "X") trace.slices.push_back(slice_in(json));
        text.remove_prefix(end + 1);
    }
    return trace;
}

std::optional<TraceSteps> steps_in(std::string_view text) {
    if (text == "none") return TraceSteps{};
    constexpr std::string_view key = "steps=";
    if (!text.starts_with(key)) return {};
    text.remove_prefix(key.size());
    const auto dash = text.find('-');
    const auto first = parse_integer(text.substr(0, dash));
    const auto last = dash == text.npos ? first : parse_integer(text.substr(dash + 1));
    if (!first || !last || *first < 1 || *last < *first) return {};
    return TraceSteps{*first, *last};
}

std::vector<RankLogFacts> traced_ranks(const fs::path& logs) {
    if (!fs::is_directory(status_of(logs))) return {};
    std::vector<RankLogFacts> ranks = read_log_facts(logs);
    std::erase_if(ranks, [&](const RankLogFacts& rank) {
        return !fs::exists(status_of(trace_path(logs, rank.rank)));
    });
    return ranks;
}

/// The newest start that left traces, or `asked`; 0: none did.
std::int64_t traced_start(const fs::path& root, std::int64_t asked) {
    for (std::int64_t i = asked > 0 ? asked : read_incarnation(root); i >= 1; --i) {
        if (!traced_ranks(RunPaths{root}.logs(i)).empty()) return i;
        if (asked > 0) break;
    }
    return 0;
}

void note(MergedTraces& merged, const StepTrace& trace) {
    merged.ranks.push_back(trace.rank);
    merged.slices += trace.slices.size();
    merged.dropped += trace.dropped;
    if (merged.steps.last == 0) merged.steps = trace.steps;
    merged.steps.first = std::min(merged.steps.first, trace.steps.first);
    merged.steps.last = std::max(merged.steps.last, trace.steps.last);
}

}  // namespace

TraceSteps parse_trace_steps(const GivenValue& given) {
    const auto steps = steps_in(given.text);
    check(steps.has_value(), [&] {
        return Error("E103",
                     fmt::format("--trace is '{}' (from {})", given.text, given.origin),
                     "it must be steps=FIRST-LAST, whole numbers from 1, or none",
                     "for example --trace steps=50-60");
    });
    return *steps;
}

std::string trace_steps_text(const TraceSteps& steps) {
    if (steps.last == 0) return "none";
    return steps.first == steps.last ? fmt::format("steps={}", steps.first)
                                     : fmt::format("steps={}-{}", steps.first, steps.last);
}

std::string name_of(const StepTrace& trace) {
    return fmt::format("rank {} on {}", trace.rank, trace.host);
}

fs::path trace_path(const fs::path& logs, int rank) {
    return logs / fmt::format("rank-{:05}.trace.json.gz", rank);
}

void write_trace(const fs::path& path, const StepTrace& trace) {
    write_file_atomically(path,
                          gzip(head_of(trace) + events_of(trace, TraceFile::own, 0) + "\n]}\n"));
}

StepTrace read_trace(const fs::path& path) {
    const auto text = gunzip(read_file(path, most_text), most_text);
    check(text.has_value(), [&] {
        return Error("E222",
                     fmt::format("'{}' is no trace of a rank: it does not unpack", path.string()),
                     "it is cut, damaged, or something else",
                     "train with --trace again");
    });
    try {
        return trace_in(*text, path.string());
    } catch (const Error& error) {
        throw Error("E222",
                    fmt::format("'{}' is no trace of a rank: {}", path.string(), error.what()),
                    "it is damaged, or was written by something else",
                    "train with --trace again");
    }
}

MergedTraces merge_traces(const fs::path& root, std::int64_t incarnation, const fs::path& out) {
    MergedTraces merged{.incarnation = traced_start(root, incarnation)};
    check(merged.incarnation > 0, [&] {
        return Error("E201",
                     fmt::format("{} of run '{}' has traces",
                                 incarnation > 0 ? fmt::format("no rank of start {}", incarnation)
                                                 : "no start",
                                 root.string()),
                     "ranks write traces if the run is started with --trace",
                     "resume with lockstep train ... --trace steps=FIRST-LAST, or begin a new run "
                     "with it if this one is complete");
    });
    const fs::path logs = RunPaths{root}.logs(merged.incarnation);
    merged.file = out.empty() ? root / fmt::format("trace-i{}.json", merged.incarnation) : out;
    NewFile file(merged.file, Existing::replaced);
    file.write(bytes_of("{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [\n"));
    int ranks = 0;
    const std::vector<RankLogFacts> traced = traced_ranks(logs);
    Progress progress("merging traces of ranks", traced.size());
    for (const RankLogFacts& rank : traced) {
        const StepTrace trace = read_trace(trace_path(logs, rank.rank));
        const std::string events =
            events_of(trace, TraceFile::merged, std::llround(rank.clock_ahead_s * 1e9));
        file.write(bytes_of((merged.ranks.empty() ? "" : ",\n") + events));
        note(merged, trace);
        progress.update(merged.ranks.size());
        ranks = std::max(ranks, trace.ranks);
        merged.correction_s = std::max(merged.correction_s, std::abs(rank.clock_ahead_s));
        merged.error_s = std::max(merged.error_s, rank.clock_error_s);
    }
    file.write(bytes_of("\n]}\n"));
    file.finish();
    for (int rank = 0; rank < ranks; ++rank)
        if (!std::ranges::binary_search(merged.ranks, rank)) merged.missing.push_back(rank);
    return merged;
}

}  // namespace lockstep
