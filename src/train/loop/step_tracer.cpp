// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"

#include "loop/reporter.hpp"

#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// "reduce 3", "publish"
std::string slice_name(const FlightCall& call) {
    const std::string_view op = name_of(call.op);
    return call.bucket < 0 ? std::string(op) : fmt::format("{} {}", op, call.bucket);
}

}  // namespace

StepTracer::StepTracer(const LoopParts& parts)
    : parts_(parts),
      trace_{.rank = parts.start.ranks.rank(),
             .ranks = parts.start.ranks.size(),
             .host = host_name(),
             .pid = ::getpid(),
             .steps = parts.start.settings.trace} {
    if (is_wanted(parts.course.progress.step + 1)) begin(now_s());
}

StepTracer::~StepTracer() {
    if (listener_) write();
}

bool StepTracer::is_wanted(std::int64_t step) const {
    return step >= trace_.steps.first && step <= trace_.steps.last;
}

std::int64_t StepTracer::unix_ns(double s) const {
    return began_.unix_ns + std::llround((s - began_.s) * 1e9);
}

void StepTracer::begin(double since_s) {
    began_ = {now_s(), std::llround(unix_time_s() * 1e9)};
    step_ = parts_.course.progress.step + 1;
    step_since_s_ = since_s;
    phase_ = {Phase::other, since_s};
    next_ = parts_.run.flight->recorder().next();
    listener_.emplace(parts_.run.clock, [this](const PhaseMark& begun) { enter(begun); });
}

void StepTracer::after_step() {
    if (listener_) {
        close_step(parts_.run.clock.since_s());
        if (!is_wanted(step_)) write();
    } else if (is_wanted(parts_.course.progress.step + 1)) {
        begin(parts_.run.clock.since_s());
    }
}

void StepTracer::enter(const PhaseMark& begun) {
    if (begun.phase == phase_.phase) return;
    close_phase(begun.since_s);
    phase_.phase = begun.phase;
}

void StepTracer::close_phase(double now) {
    const double since_s = std::exchange(phase_.since_s, now);
    if (now <= since_s) return;
    add({.kind = SliceKind::phase,
         .name = std::string(phase_name(phase_.phase)),
         .begin_ns = unix_ns(since_s),
         .end_ns = unix_ns(now)});
}

// A phase that goes on is cut in two: steps hold their phases whole.
void StepTracer::close_step(double now) {
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
void StepTracer::take_collectives() {
    std::vector<FlightRecorder::Ticket> tickets = std::exchange(open_, {});
    const FlightRecorder::Ticket next = parts_.run.flight->recorder().next();
    for (; next_.index < next.index; ++next_.index) tickets.push_back(next_);
    for (const FlightRecorder::Ticket& ticket : tickets) {
        const std::optional<FlightEntry> entry = parts_.run.flight->recorder().find(ticket);
        if (!entry)
            ++trace_.dropped;  // the ring came round within a step
        else if (entry->ended_s == 0)
            open_.push_back(ticket);
        else
            add(slice_of(*entry));
    }
}

TraceSlice StepTracer::slice_of(const FlightEntry& entry) const {
    return {.kind = SliceKind::collective,
            .name = slice_name(entry.call),
            .begin_ns = unix_ns(entry.enqueued_s),
            .end_ns = unix_ns(entry.ended_s),
            .channel = entry.channel,
            .seq = entry.seq,
            .bucket = entry.call.bucket,
            .bytes = entry.call.bytes,
            .waited_ns = std::llround((entry.ended_s - entry.started_s) * 1e9)};
}

void StepTracer::add(TraceSlice slice) {
    slice.step = step_;
    if (trace_.slices.size() < StepTrace::most_slices)
        trace_.slices.push_back(std::move(slice));
    else
        ++trace_.dropped;
}

// No step fails for what is only looked at.
void StepTracer::write() {
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

}  // namespace lockstep
