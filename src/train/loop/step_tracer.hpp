// SPDX-License-Identifier: Apache-2.0
// The trace of the steps that --trace asks for.
//
// Tested: e2e/traces_test.cpp.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/trace.hpp"

#include "loop/loop.hpp"

#include <cmath>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {

/// With --trace: what this rank does in the steps asked for, moment by moment. It
/// listens to the clock while such steps last, and takes collectives from the flight record, where
/// they are noted anyway: other steps cost a comparison. A step is from the end of the one before
/// to its own, as in rank-NNNNN.steps.
class StepTracer {
  public:
    /// Of a loop that is about to begin. `parts` outlives this.
    explicit StepTracer(const LoopParts& parts)
        : parts_(parts),
          trace_{.rank = parts.start.ranks.rank(),
                 .ranks = parts.start.ranks.size(),
                 .host = host_name(),
                 .pid = ::getpid(),
                 .steps = parts.start.settings.trace} {
        if (is_wanted(parts.course.progress.step + 1)) begin(now_s());
    }

    /// Writes what there is, where the loop ends amid the steps asked for.
    ~StepTracer() {
        if (listener_) write();
    }

    StepTracer& operator=(StepTracer&&) = delete;

    /// After each step. After the last one that was asked for it writes the trace.
    void after_step() {
        if (listener_) {
            close_step(parts_.run.clock.since_s());
            if (!is_wanted(step_)) write();
        } else if (is_wanted(parts_.course.progress.step + 1)) {
            begin(parts_.run.clock.since_s());
        }
    }

  private:
    bool is_wanted(std::int64_t step) const {
        return step >= trace_.steps.first && step <= trace_.steps.last;
    }

    std::int64_t unix_ns(double s) const {
        return began_unix_ns_ + std::llround((s - began_s_) * 1e9);
    }

    void begin(double since_s) {
        began_s_ = now_s();
        began_unix_ns_ = std::llround(unix_time_s() * 1e9);
        step_ = parts_.course.progress.step + 1;
        step_since_s_ = since_s;
        phase_ = {Phase::other, since_s};
        next_ = parts_.run.recorder().next();
        listener_.emplace(parts_.run.clock, [this](const PhaseMark& begun) {
            if (begun.phase == phase_.phase) return;
            close_phase(begun.since_s);
            phase_.phase = begun.phase;
        });
    }

    void close_phase(double now) {
        const double since_s = std::exchange(phase_.since_s, now);
        if (now <= since_s) return;
        add({.kind = SliceKind::phase,
             .name = std::string(phase_name(phase_.phase)),
             .begin_ns = unix_ns(since_s),
             .end_ns = unix_ns(now)});
    }

    // A phase that goes on is cut in two: steps hold their phases whole.
    void close_step(double now) {
        close_phase(now);
        take_collectives();
        add({.kind = SliceKind::step,
             .name = fmt::format("ProfilerStep#{}", step_),
             .begin_ns = unix_ns(step_since_s_),
             .end_ns = unix_ns(now)});
        step_since_s_ = now;
        step_ = parts_.course.progress.step + 1;
    }

    // Those that a GPU still has are looked at again after the next step.
    void take_collectives() {
        std::vector<FlightRecorder::Ticket> tickets = std::exchange(open_, {});
        const FlightRecorder::Ticket next = parts_.run.recorder().next();
        for (; next_.index < next.index; ++next_.index) tickets.push_back(next_);
        for (const FlightRecorder::Ticket& ticket : tickets) {
            const std::optional<FlightEntry> entry = parts_.run.recorder().find(ticket);
            if (!entry)
                ++trace_.dropped;  // the ring came round within a step
            else if (entry->ended_s == 0)
                open_.push_back(ticket);
            else
                add(slice_of(*entry));
        }
    }

    TraceSlice slice_of(const FlightEntry& entry) const {
        const std::string_view op = name_of(entry.call.op);
        const int bucket = entry.call.bucket;
        return {.kind = SliceKind::collective,
                .name = bucket < 0 ? std::string(op) : fmt::format("{} {}", op, bucket),
                .begin_ns = unix_ns(entry.enqueued_s),
                .end_ns = unix_ns(entry.ended_s),
                .channel = entry.channel,
                .seq = entry.seq,
                .bucket = bucket,
                .bytes = entry.call.bytes,
                .waited_ns = std::llround((entry.ended_s - entry.started_s) * 1e9)};
    }

    void add(TraceSlice slice) {
        slice.step = step_;
        if (trace_.slices.size() < StepTrace::most_slices)
            trace_.slices.push_back(std::move(slice));
        else
            ++trace_.dropped;
    }

    // No step fails for what is only looked at.
    void write() {
        listener_.reset();
        const fs::path path =
            trace_path(parts_.run.paths.logs(parts_.run.incarnation), parts_.start.ranks.rank());
        try {
            write_trace(path, trace_);
            if (parts_.start.ranks.is_root())
                once(Level::info,
                     "traced {}: lockstep trace merge {}",
                     trace_steps_text(trace_.steps),
                     parts_.run.paths.root.string());
        } catch (const std::exception& failed) {
            here(Level::warn, "the trace is lost: {}", as_error(failed).what());
        }
        trace_.slices = {};
    }

    const LoopParts& parts_;
    std::optional<PhaseListener> listener_;  ///< while steps are traced
    StepTrace trace_;
    double began_s_ = 0;              ///< of now_s(), at the same moment as
    std::int64_t began_unix_ns_ = 0;  ///< since 1970
    PhaseMark phase_;                 ///< that is going on
    std::int64_t step_ = 0;
    double step_since_s_ = 0;                   ///< when that began
    FlightRecorder::Ticket next_;               ///< the first collective that was not looked at
    std::vector<FlightRecorder::Ticket> open_;  ///< those without an end when they were
};

}  // namespace lockstep
