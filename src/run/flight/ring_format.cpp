// SPDX-License-Identifier: Apache-2.0
#include "flight/ring_format.hpp"

#include "lockstep/run/watchdog.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

bool is_known(FlightOp op) {
    return op == FlightOp::all_reduce || (op >= FlightOp::all_gather && op <= FlightOp::publish);
}

double seconds(const RingWord& nanoseconds) {
    return static_cast<double>(nanoseconds.load(std::memory_order_acquire)) * 1e-9;
}

}  // namespace

std::optional<FlightEntry> whole_entry(const RingEntry& entry, std::uint64_t index) {
    constexpr auto acquire = std::memory_order_acquire;
    const std::uint64_t stamp = 2 * index + 2;
    if (entry.stamp.load(acquire) != stamp) return std::nullopt;
    const std::uint64_t what = entry.what.load(acquire);
    const std::int64_t bucket = static_cast<std::int64_t>(what >> 32) - 1;
    if (bucket > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    FlightEntry found;
    found.channel = static_cast<std::uint32_t>(what >> 16 & 0xffff);
    found.seq = entry.seq.load(acquire);
    found.call = {.op = static_cast<FlightOp>(what & 0xff),
                  .bytes = entry.bytes.load(acquire),
                  .bucket = static_cast<std::int32_t>(bucket)};
    found.enqueued_s = seconds(entry.enqueued);
    found.started_s = seconds(entry.started);
    found.ended_s = seconds(entry.ended);
    const bool makes_sense =
        found.channel < ring_channels && found.seq > 0 && is_known(found.call.op);
    const bool is_same = entry.stamp.load(acquire) == stamp;
    return makes_sense && is_same ? std::optional(found) : std::nullopt;
}

double StuckClock::update(const std::optional<FlightEntry>& pending, double now_s) {
    constexpr double most_periods = 4;  // longer between two calls: this process was stopped itself
    const double before_s = std::exchange(last_s_, now_s);
    if (!pending) return waited_s_ = 0;
    const bool is_same = pending->channel == channel_ && pending->seq == seq_;
    if (!is_same) waited_s_ = 0;
    channel_ = pending->channel;
    seq_ = pending->seq;
    const double passed_s = now_s - std::max(before_s, pending->enqueued_s);
    waited_s_ += std::clamp(passed_s, 0.0, most_periods * period_s_);
    return waited_s_;
}

}  // namespace lockstep
