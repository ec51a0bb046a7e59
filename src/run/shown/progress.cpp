// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/progress.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/step_line.hpp"

#include <limits>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double live_every_s = 0.1;

}  // namespace

ProgressSink ProgressSink::log_sink() {
    return {.is_live = has_live_terminal(),
            .show = [](std::string_view line) { show_live(line); },
            .say = [](std::string_view line) { once(Level::info, "{}", line); },
            .record = [](std::string_view line) { once(Level::debug, "{}", line); },
            .now_s = [] { return lockstep::now_s(); }};
}

ProgressSink ProgressSink::beside_output() {
    ProgressSink sink = log_sink();
    sink.say = [](std::string_view line) { write_error(std::string(line) + "\n"); };
    sink.sums_up = false;
    return sink;
}

Progress::Progress(std::string label,
                   std::uint64_t total,
                   ProgressUnit unit,
                   ProgressSink sink,
                   double plain_every_s)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      sink_(std::move(sink)),
      plain_every_s_(plain_every_s),
      start_s_(sink_.now_s()),
      last_live_s_(-std::numeric_limits<double>::infinity()),
      last_plain_s_(start_s_) {}

Progress::Progress(ProgressSink sink) : Progress("", 0, ProgressUnit::count, std::move(sink)) {}

Progress::~Progress() {
    if (sink_.is_live) sink_.show("");
}

void Progress::update(std::string_view label,
                      std::uint64_t done,
                      std::uint64_t total,
                      ProgressUnit unit) {
    if (label != label_ || total != total_) {
        finish();
        label_ = label;
        total_ = total;
        unit_ = unit;
        first_ = done_ = 0;
        start_s_ = last_plain_s_ = sink_.now_s();
        last_live_s_ = -std::numeric_limits<double>::infinity();
    }
    update(done);
}

bool Progress::is_due() const {
    const double now = sink_.now_s();
    return now - last_plain_s_ >= plain_every_s_ ||
           (sink_.is_live && now - last_live_s_ >= live_every_s);
}

void Progress::update(std::uint64_t done, std::string_view line) {
    done_ = done;
    if (!is_due()) return;
    const auto text = line.empty() ? own_line() : std::string(line);
    const double now = sink_.now_s();
    if (now - last_plain_s_ >= plain_every_s_) {
        sink_.is_live ? sink_.record(text) : sink_.say(text);
        last_plain_s_ = now;
    }
    if (!sink_.is_live) return;
    last_live_s_ = now;
    const std::size_t columns = terminal_columns() - 1;  // the last one may begin another line
    if (total_ == 0) return sink_.show(cut_to_columns(text, columns));
    const double fraction = static_cast<double>(done) / static_cast<double>(total_);
    sink_.show(live_line(fraction, eta_s(), text, columns));
}

void Progress::finish() {
    if (label_.empty()) return;  // no stage has begun
    if (sink_.is_live) sink_.show("");
    if (!sink_.sums_up) return;
    const double seconds = sink_.now_s() - start_s_;
    sink_.say(fmt::format("{} {} in {}",
                          label_,
                          amount(static_cast<double>(done_ - first_)),
                          duration_text(seconds)));
}

double Progress::eta_s() const {
    const double speed = rate();
    if (total_ == 0 || speed <= 0 || done_ > total_) return -1;
    return static_cast<double>(total_ - done_) / speed;
}

double Progress::rate() const {
    const double seconds = sink_.now_s() - start_s_;
    if (seconds <= 0 || done_ <= first_) return 0;
    return static_cast<double>(done_ - first_) / seconds;
}

std::string Progress::amount(double value) const {
    const auto whole = static_cast<std::uint64_t>(value);
    return unit_ == ProgressUnit::bytes ? bytes_text(whole) : grouped(whole);
}

std::string Progress::own_line() const {
    auto line = fmt::format("{} {}", label_, amount(static_cast<double>(done_)));
    if (total_ > 0) line += " of " + amount(static_cast<double>(total_));
    return line + fmt::format(" | {}/s", amount(rate()));
}

}  // namespace lockstep
