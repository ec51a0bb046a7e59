// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

double now_s() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double thread_processor_s() {
    std::timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
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

std::optional<double> parse_utc(std::string_view text) {
    if (text.ends_with('Z')) text.remove_suffix(1);
    std::array<int, 7> parts{1970, 1, 1, 0, 0, 0, 0};
    constexpr std::array<std::string_view, 7> before{"", "-", "-", "T ", ":", ":", "."};
    constexpr std::array<std::size_t, 7> digits{4, 2, 2, 2, 2, 2, 3};
    std::size_t given = 0;
    for (; given < parts.size() && !text.empty(); ++given) {
        if (!before[given].empty()) {
            if (before[given].find(text.front()) == text.npos) return {};
            text.remove_prefix(1);
        }
        const std::string_view number = text.substr(0, digits[given]);
        if (number.size() < digits[given] || number.find_first_not_of("0123456789") != number.npos)
            return {};
        std::from_chars(number.data(), number.data() + number.size(), parts[given]);
        text.remove_prefix(number.size());
    }
    if (!text.empty() || given < 3 || given == 4) return {};
    std::tm utc{};
    utc.tm_year = parts[0] - 1900;
    utc.tm_mon = parts[1] - 1;
    utc.tm_mday = parts[2];
    utc.tm_hour = parts[3];
    utc.tm_min = parts[4];
    utc.tm_sec = parts[5];
    const std::tm asked = utc;
    const std::time_t time = ::timegm(&utc);
    const bool is_date = asked.tm_mon == utc.tm_mon && asked.tm_mday == utc.tm_mday &&
                         asked.tm_hour == utc.tm_hour && asked.tm_min == utc.tm_min;
    if (!is_date) return {};
    return static_cast<double>(time) + parts[6] / 1000.0;
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
    constexpr std::string_view names[] = {"data",
                                          "forward",
                                          "backward",
                                          "comm",
                                          "wait",
                                          "update",
                                          "checkpoint",
                                          "evaluate",
                                          "other",
                                          "copy"};
    return names[static_cast<std::size_t>(phase)];
}

PhaseSeconds& PhaseSeconds::operator+=(const PhaseSeconds& more) {
    for (std::size_t i = 0; i < size(); ++i) (*this)[i] += more[i];
    return *this;
}

double PhaseSeconds::sum() const {
    return std::accumulate(begin(), end(), 0.0);
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
    seconds_[current_] += now - since_;
    since_ = now;
    if (mirror_ != nullptr) mirror_->store(packed({phase, now}), std::memory_order_relaxed);
    for (const PhaseListener* listener : listeners_) listener->told_({phase, now});
    return std::exchange(current_, phase);
}

PhaseSeconds PhaseClock::seconds() {
    const double now = now_s();
    seconds_[current_] += now - std::exchange(since_, now);
    return seconds_;
}

void PhaseClock::correct(const PhaseSeconds& before, PhaseSeconds measured, Phase rest) {
    const PhaseSeconds now = seconds();
    const double counted = now.sum() - before.sum(), found = measured.sum();
    const double scale = found > counted ? counted / found : 1;
    for (std::size_t i = 0; i < measured.size(); ++i) seconds_[i] = before[i] + scale * measured[i];
    seconds_[rest] += counted - scale * found;
}

void PhaseClock::reassign(Phase from, Phase to, double seconds) {
    double& source = seconds_[from];
    const double moved = std::min(seconds, source);
    source -= moved;
    seconds_[to] += moved;
}

PhaseSeconds PhaseClock::take() {
    enter(current_);
    return std::exchange(seconds_, PhaseSeconds{});
}

void PhaseClock::mirror_to(std::atomic<std::uint64_t>* word) {
    mirror_ = word;
    if (word != nullptr) word->store(packed({current_, since_}), std::memory_order_relaxed);
}

PhaseListener::PhaseListener(PhaseClock& clock, Told told) : clock_(clock), told_(std::move(told)) {
    clock_.listeners_.push_back(this);
}

PhaseListener::~PhaseListener() {
    std::erase(clock_.listeners_, this);
}

}  // namespace lockstep
