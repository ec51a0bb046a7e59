// SPDX-License-Identifier: Apache-2.0
#include "trace/chrome.hpp"

#include "lockstep/core/json.hpp"

#include "trace/lanes.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Names that Kineto uses; HTA takes steps from the first.
std::string_view kineto_category(SliceKind kind) {
    constexpr std::string_view names[] = {"user_annotation", "cpu_op", "collective"};
    return names[static_cast<std::size_t>(kind)];
}

/// Microseconds, to a quarter: floating-point numbers between 2^50 and 2^51, as those since 1970
/// are, hold these exactly, so that what lies within something else does so for every reader.
std::string micros(std::int64_t ns) {
    const std::int64_t quarters = (ns + 125) / 250;
    return fmt::format("{}.{:02}", quarters / 4, quarters % 4 * 25);
}

/// How long it takes, between rounded ends.
std::string micros_between(std::int64_t begin_ns, std::int64_t end_ns) {
    return micros(((end_ns + 125) / 250 - (begin_ns + 125) / 250) * 250);
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
                       std::size_t lane,
                       const std::string& name) {
    return fmt::format("{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{}}},\n",
                       what,
                       pid,
                       lane,
                       Json(std::map<std::string, std::string>{{"name", name}}).dump());
}

std::string slice_event(const TraceSlice& slice,
                        std::int64_t pid,
                        std::size_t lane,
                        std::int64_t ahead_ns) {
    const std::int64_t begin_ns = slice.begin_ns - ahead_ns, end_ns = slice.end_ns - ahead_ns;
    return fmt::format(
        "{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},"
        "\"args\":{}}},\n",
        kineto_category(slice.kind),
        Json(slice.name).dump(),
        pid,
        lane,
        micros(begin_ns),
        micros_between(begin_ns, end_ns),
        args_of(slice));
}

}  // namespace

std::string chrome_events(const StepTrace& trace, std::int64_t pid, std::int64_t ahead_ns) {
    const std::vector<Lane> lanes = lanes_of(trace);
    std::string text = name_event("process_name", pid, 0, name_of(trace));
    std::size_t number = 0;
    for (const Lane& lane : lanes) text += name_event("thread_name", pid, ++number, lane.name);
    number = 0;
    for (const Lane& lane : lanes) {
        ++number;
        for (const TraceSlice* slice : lane.slices)
            text += slice_event(*slice, pid, number, ahead_ns);
    }
    return text;
}

}  // namespace lockstep
