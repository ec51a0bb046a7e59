// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

double now_s() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double unix_time_s() {
    using namespace std::chrono;
    return duration<double>(system_clock::now().time_since_epoch()).count();
}

std::string utc_text(double unix_s) {
    const auto whole = static_cast<std::time_t>(std::floor(unix_s));
    const int millis = static_cast<int>((unix_s - static_cast<double>(whole)) * 1000);
    std::tm parts{};
    gmtime_r(&whole, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
                       parts.tm_year + 1900,
                       parts.tm_mon + 1,
                       parts.tm_mday,
                       parts.tm_hour,
                       parts.tm_min,
                       parts.tm_sec,
                       millis);
}

std::string duration_text(double seconds) {
    if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1e3);
    if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
    const auto whole = static_cast<long long>(std::llround(seconds));
    if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
    if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
    return fmt::format("{}d{:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string_view phase_name(Phase phase) {
    constexpr std::string_view names[] = {
        "data", "forward", "backward", "comm", "wait", "update", "checkpoint", "evaluate", "other"};
    return names[static_cast<std::size_t>(phase)];
}

std::uint64_t packed(const PhaseMark& mark) {
    const auto micros = static_cast<std::uint64_t>(std::max(mark.since_s, 0.0) * 1e6);
    return static_cast<std::uint64_t>(mark.phase) << 56 | (micros & (~std::uint64_t{0} >> 8));
}

PhaseMark unpacked_phase(std::uint64_t word) {
    const std::uint64_t phase = word >> 56;
    const bool known = word != 0 && phase < static_cast<std::uint64_t>(Phase::count);
    return {known ? static_cast<Phase>(phase) : Phase::other,
            static_cast<double>(word & (~std::uint64_t{0} >> 8)) * 1e-6};
}

Phase PhaseClock::enter(Phase phase) {
    const double now = now_s();
    seconds_[static_cast<std::size_t>(current_)] += now - since_;
    since_ = now;
    if (mirror_ != nullptr) mirror_->store(packed({phase, now}), std::memory_order_relaxed);
    return std::exchange(current_, phase);
}

void PhaseClock::reassign(Phase from, Phase to, double seconds) {
    double& source = seconds_[static_cast<std::size_t>(from)];
    const double moved = std::min(seconds, source);
    source -= moved;
    seconds_[static_cast<std::size_t>(to)] += moved;
}

PhaseSeconds PhaseClock::take() {
    enter(current_);
    return std::exchange(seconds_, PhaseSeconds{});
}

void PhaseClock::mirror_to(std::atomic<std::uint64_t>* word) {
    mirror_ = word;
    if (word != nullptr) word->store(packed({current_, since_}), std::memory_order_relaxed);
}

}  // namespace lockstep
