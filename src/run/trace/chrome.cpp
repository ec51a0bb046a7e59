// SPDX-License-Identifier: Apache-2.0
#include "trace/chrome.hpp"

#include "lockstep/core/json.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// See lane_of().
struct Lane {
    std::string name;
    std::vector<const TraceSlice*> slices;  ///< in the trace's order
};

/// Steps first, then collectives by bucket, then the other collectives. They borrow from `trace`.
std::vector<Lane> lanes_of(const StepTrace& trace) {
    std::map<std::pair<std::int64_t, std::string>, std::vector<const TraceSlice*>> found;
    for (const TraceSlice& slice : trace.slices) {
        const std::int64_t place = slice.kind != SliceKind::collective ? -1
                                   : slice.bucket >= 0                 ? slice.bucket
                                                                       : std::int64_t{1} << 32;
        found[{place, lane_of(slice)}].push_back(&slice);
    }
    std::vector<Lane> lanes;
    for (auto& [place, slices] : found) lanes.push_back({place.second, std::move(slices)});
    return lanes;
}

constexpr std::int64_t quarter_ns = 250;

/// Names that Kineto uses; HTA takes steps from the first.
std::string_view kineto_category(SliceKind kind) {
    constexpr std::string_view names[] = {"user_annotation", "cpu_op", "collective"};
    return names[static_cast<std::size_t>(kind)];
}

/// Microseconds, to a quarter: floating-point numbers between 2^50 and 2^51, as those since 1970
/// are, hold these exactly, so that what lies within something else does so for every reader.
std::string micros(std::int64_t ns) {
    const std::int64_t quarters = (ns + quarter_ns / 2) / quarter_ns;
    return fmt::format("{}.{:02}", quarters / 4, quarters % 4 * 25);
}

/// Returns the duration between rounded ends.
std::string micros_between(std::int64_t begin_ns, std::int64_t end_ns) {
    const auto quarters = [](std::int64_t ns) { return (ns + quarter_ns / 2) / quarter_ns; };
    return micros((quarters(end_ns) - quarters(begin_ns)) * quarter_ns);
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

/// The number of a lane of one rank's process, as a thread.
using ThreadOf = std::function<std::int64_t(std::size_t lane)>;

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

std::string names(const StepTrace& trace,
                  const std::vector<Lane>& lanes,
                  std::int64_t pid,
                  const ThreadOf& thread_of) {
    std::string text = name_event("process_name", pid, 0, name_of(trace));
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
        text += name_event("thread_name", pid, thread_of(lane), lanes[lane].name);
    return text;
}

std::string slice_event(const TraceSlice& slice,
                        std::int64_t pid,
                        std::int64_t thread,
                        std::int64_t ahead_ns) {
    const std::int64_t begin_ns = slice.begin_ns - ahead_ns, end_ns = slice.end_ns - ahead_ns;
    return fmt::format(
        "{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},"
        "\"args\":{}}},\n",
        kineto_category(slice.kind),
        Json(slice.name).dump(),
        pid,
        thread,
        micros(begin_ns),
        micros_between(begin_ns, end_ns),
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
        "collective\",\"id\":\"{}.{}.{}\",\"pid\":{},"
        "\"tid\":{},\"ts\":{}}},\n",
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

}  // namespace

std::string chrome_events(const StepTrace& trace) {
    const std::vector<Lane> lanes = lanes_of(trace);
    const auto thread_of = [](std::size_t lane) { return static_cast<std::int64_t>(lane) + 1; };
    std::string text = names(trace, lanes, trace.pid, thread_of);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
        for (const TraceSlice* slice : lanes[lane].slices)
            text += slice_event(*slice, trace.pid, thread_of(lane), 0);
    return text;
}

// Process 0 is the idle one to Perfetto. It shows the thread first that has its process' number,
// and takes threads of one number for the same thread: steps are that one, and numbers are unique.
std::string merged_events(const StepTrace& trace, std::int64_t ahead_ns) {
    constexpr int lane_bits = 24;  // more than ranks
    const std::int64_t pid = std::int64_t{trace.rank} + 1;
    const auto thread_of = [&](std::size_t lane) {
        return static_cast<std::int64_t>(lane) << lane_bits | pid;
    };
    std::vector<Lane> lanes = lanes_of(trace);
    std::string text = names(trace, lanes, pid, thread_of);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        std::ranges::stable_sort(lanes[lane].slices, begins_before);
        for (const TraceSlice* slice : lanes[lane].slices) {
            text += slice_event(*slice, pid, thread_of(lane), ahead_ns);
            if (slice->kind == SliceKind::collective)
                text += arrows(*slice, trace, pid, thread_of(lane), ahead_ns);
        }
    }
    return text;
}

}  // namespace lockstep
