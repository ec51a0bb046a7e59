// SPDX-License-Identifier: Apache-2.0
// A rank is a process with one track for steps and one for each lane of collectives, and writes one
// sequence of packets:
//
//     clock | process | track ... | begin forward (names: 1 = "forward") | end | begin (name 1) ...
//
// Begins and ends of a track have to nest, for an end belongs to whatever began last there: they
// are put into order by their slices, not by their times alone. A name is spelt out in the packet
// that needs it first, and is a number from then on. Slices of the same collective have the same
// flow number on all ranks, made of its channel and its number in there: so ranks are written one
// by one, and none is kept.
//
// Tested: observe/trace_test.cpp (a decoder of its own), train/traces_peer (Perfetto's schema).
#include "trace/perfetto.hpp"

#include "protobuf.hpp"
#include "trace/lanes.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using protobuf::put_bytes;
using protobuf::put_fixed64;
using protobuf::put_integer;

// Field numbers of perfetto.protos.
namespace packet_field {
constexpr std::uint64_t clock_snapshot = 6, timestamp = 8, sequence = 10, track_event = 11,
                        interned_data = 12, sequence_flags = 13, track_descriptor = 60;
}
namespace track_field {
constexpr std::uint64_t uuid = 1, name = 2, process = 3, parent = 5, child_ordering = 11,
                        sibling_rank = 12;
}
namespace event_field {
constexpr std::uint64_t categories = 3, annotations = 4, type = 9, name = 10, track = 11,
                        flows = 47;
}
namespace interned_field {
constexpr std::uint64_t categories = 1, event_names = 2, annotation_names = 3;
}
constexpr std::int64_t slice_begin = 1, slice_end = 2, explicit_order = 3;
constexpr std::int64_t state_is_cleared = 1, needs_state = 2;
constexpr std::int64_t realtime_clock = 1, boottime_clock = 6;

/// Numbers of names, from 1; those that are new are told in the packet that uses them.
class Names {
  public:
    explicit Names(std::uint64_t field) : field_(field) {}

    std::int64_t number(const std::string& name, std::string& interned) {
        const auto [found, is_new] =
            numbers_.emplace(name, static_cast<std::int64_t>(numbers_.size()) + 1);
        if (is_new) {
            std::string entry;
            put_integer(entry, 1, found->second);
            put_bytes(entry, 2, name);
            put_bytes(interned, field_, entry);
        }
        return found->second;
    }

  private:
    std::uint64_t field_;
    std::map<std::string, std::int64_t> numbers_;
};

std::string_view kind_name(SliceKind kind) {
    constexpr std::string_view names[] = {"step", "phase", "collective"};
    return names[static_cast<std::size_t>(kind)];
}

/// The same for a collective on all ranks; never 0.
std::uint64_t flow_of(const TraceSlice& slice) {
    return (std::uint64_t{slice.channel} + 1) << 48 | slice.seq;
}

/// Slices of a lane, outer ones before those within them.
bool begins_before(const TraceSlice* a, const TraceSlice* b) {
    return std::tie(a->begin_ns, b->end_ns, a->kind) < std::tie(b->begin_ns, a->end_ns, b->kind);
}

class Writer {
  public:
    Writer(const StepTrace& trace, std::int64_t ahead_ns)
        : trace_(trace), ahead_ns_(ahead_ns), lanes_(lanes_of(trace)) {}

    std::string packets() {
        describe_clock();
        describe_process();
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) describe(lane);
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) write(lane);
        return std::move(out_);
    }

  private:
    /// Unique in a trace of fewer than 2^31 ranks; 0 is the process itself.
    std::int64_t uuid(std::size_t track) const {
        return (std::int64_t{trace_.rank} + 1) << 32 | static_cast<std::int64_t>(track);
    }

    void add(std::string packet, std::int64_t flags) {
        put_integer(packet, packet_field::sequence, std::int64_t{trace_.rank} + 1);
        put_integer(packet, packet_field::sequence_flags, flags);
        put_bytes(out_, 1, packet);
    }

    /// Times are those of the calendar.
    void describe_clock() {
        if (trace_.slices.empty()) return;
        const std::int64_t now = trace_.slices.front().begin_ns - ahead_ns_;
        std::string snapshot;
        for (const std::int64_t clock : {realtime_clock, boottime_clock}) {
            std::string reading;
            put_integer(reading, 1, clock);
            put_integer(reading, 2, now);
            put_bytes(snapshot, 1, reading);
        }
        std::string packet;
        put_integer(packet, packet_field::timestamp, now);
        put_bytes(packet, packet_field::clock_snapshot, snapshot);
        add(std::move(packet), state_is_cleared);
    }

    void add_descriptor(const std::string& descriptor) {
        std::string packet;
        put_bytes(packet, packet_field::track_descriptor, descriptor);
        add(std::move(packet), needs_state);
    }

    /// Process 0 is the idle one to Perfetto: so numbers are those of ranks, and 1.
    void describe_process() {
        std::string process;
        put_integer(process, 1, std::int64_t{trace_.rank} + 1);
        put_bytes(process, 6, name_of(trace_));
        std::string descriptor;
        put_integer(descriptor, track_field::uuid, uuid(0));
        put_bytes(descriptor, track_field::process, process);
        put_integer(descriptor, track_field::child_ordering, explicit_order);
        add_descriptor(descriptor);
    }

    void describe(std::size_t lane) {
        std::string descriptor;
        put_integer(descriptor, track_field::uuid, uuid(lane + 1));
        put_bytes(descriptor, track_field::name, lanes_[lane].name);
        put_integer(descriptor, track_field::parent, uuid(0));
        put_integer(descriptor, track_field::sibling_rank, static_cast<std::int64_t>(lane));
        add_descriptor(descriptor);
    }

    void write(std::size_t lane) {
        std::vector<const TraceSlice*>& slices = lanes_[lane].slices;
        std::stable_sort(slices.begin(), slices.end(), begins_before);
        std::vector<std::int64_t> open;  // ends of what has begun, the innermost last
        const auto close_until = [&](std::int64_t time_ns) {
            for (; !open.empty() && open.back() <= time_ns; open.pop_back()) end(lane, open.back());
        };
        for (const TraceSlice* slice : slices) {
            close_until(slice->begin_ns);
            begin(lane, *slice);
            open.push_back(open.empty() ? slice->end_ns : std::min(slice->end_ns, open.back()));
        }
        for (; !open.empty(); open.pop_back()) end(lane, open.back());
    }

    void begin(std::size_t lane, const TraceSlice& slice) {
        std::string interned, event;
        put_integer(event,
                    event_field::categories,
                    categories_.number(std::string(kind_name(slice.kind)), interned));
        annotate(event, interned, slice);
        put_integer(event, event_field::type, slice_begin);
        put_integer(event, event_field::name, event_names_.number(slice.name, interned));
        put_integer(event, event_field::track, uuid(lane + 1));
        if (slice.kind == SliceKind::collective)
            put_fixed64(event, event_field::flows, flow_of(slice));
        add_event(slice.begin_ns, event, interned);
    }

    void annotate(std::string& event, std::string& interned, const TraceSlice& slice) {
        const auto add = [&](const std::string& name, std::int64_t value) {
            std::string annotation;
            put_integer(annotation, 1, annotation_names_.number(name, interned));
            put_integer(annotation, 4, value);
            put_bytes(event, event_field::annotations, annotation);
        };
        add("step", slice.step);
        if (slice.kind != SliceKind::collective) return;
        add("bytes", static_cast<std::int64_t>(slice.bytes));
        add("seq", static_cast<std::int64_t>(slice.seq));
        add("waited_ns", slice.waited_ns);
    }

    void end(std::size_t lane, std::int64_t time_ns) {
        std::string event;
        put_integer(event, event_field::type, slice_end);
        put_integer(event, event_field::track, uuid(lane + 1));
        add_event(time_ns, event, {});
    }

    void add_event(std::int64_t time_ns, const std::string& event, const std::string& interned) {
        std::string packet;
        put_integer(packet, packet_field::timestamp, time_ns - ahead_ns_);
        put_bytes(packet, packet_field::track_event, event);
        if (!interned.empty()) put_bytes(packet, packet_field::interned_data, interned);
        add(std::move(packet), needs_state);
    }

    const StepTrace& trace_;
    std::int64_t ahead_ns_;
    std::vector<Lane> lanes_;
    Names categories_{interned_field::categories}, event_names_{interned_field::event_names},
        annotation_names_{interned_field::annotation_names};
    std::string out_;
};

}  // namespace

std::string perfetto_packets(const StepTrace& trace, std::int64_t ahead_ns) {
    return Writer(trace, ahead_ns).packets();
}

}  // namespace lockstep
