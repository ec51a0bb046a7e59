// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/progress.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr double live_every_s = 0.1;
constexpr std::size_t least_for_bar = 30;  // below it the bar would be all there is

/// "4.0e-2": two digits and an exponent without leading zeros.
std::string short_exponent(double value) {
    auto text = fmt::format("{:.1e}", value);
    const auto sign = text.find_first_of("+-", text.find('e'));
    if (sign == std::string::npos) return text;
    const auto digits = text.find_first_not_of('0', sign + 1);
    text.erase(sign + 1, std::min(digits, text.size() - 1) - sign - 1);
    return text;
}

/// Shares of the phases that a user acts on; the rest is the model's own work.
std::string phases_text(const PhaseSeconds& phases) {
    const double total = phases.sum();
    std::string text;
    for (const auto phase : {Phase::data, Phase::copy, Phase::comm, Phase::wait}) {
        const double seconds = phases[phase];
        if (phase == Phase::copy && seconds == 0) continue;  // without a GPU nothing is copied
        text += fmt::format("{}{} {:.0f} %",
                            text.empty() ? "" : " ",
                            phase_name(phase),
                            total > 0 ? 100 * seconds / total : 0.0);
    }
    return text;
}

std::string bar(double fraction) {
    constexpr double width = 20;
    const auto filled = static_cast<std::size_t>(std::floor(fraction * width));
    return std::string(filled, '#') + std::string(static_cast<std::size_t>(width) - filled, '-');
}

/// 0 where `fd` is no terminal, or one that does not know.
std::size_t columns_of(int fd) {
    winsize size{};
    return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// mpirun's ranks write to terminals of its own making, which have no width: the one that the user
/// looks at still controls them.
std::size_t controlling_columns() {
    return columns_of(UniqueFd(::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC)).value());
}

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

std::string rate_text(double per_second) {
    constexpr std::array units{"", "k", "M", "G", "T"};
    std::size_t unit = 0;
    double value = std::isfinite(per_second) ? std::max(per_second, 0.0) : 0.0;
    for (; value >= 999.5 && unit + 1 < units.size(); ++unit) value /= 1000;
    const int decimals = value >= 99.95 || (unit == 0 && value >= 10) ? 0 : value >= 9.995 ? 1 : 2;
    return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}

std::string step_line(const StepReport& report) {
    auto line = fmt::format("step {} | loss {:.4f} | lr {} | {} samples/s | {}",
                            report.step,
                            without_sign_of_nan(report.loss),
                            short_exponent(report.lr),
                            rate_text(report.samples_per_s),
                            phases_text(report.phases));
    if (report.memory_bytes > 0) line += " | mem " + bytes_text(report.memory_bytes);
    return line;
}

std::string live_line(double fraction, double eta_s, const std::string& text, std::size_t columns) {
    const double part = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
    auto line = columns < least_for_bar ? std::string() : fmt::format("[{}] ", bar(part));
    line += fmt::format("{:3.0f} %", std::floor(100 * part));
    if (eta_s >= 0) line += " eta " + duration_text(eta_s);
    if (!text.empty()) line += " | " + text;
    return cut_to_columns(line, columns);
}

std::string cut_to_columns(const std::string& line, std::size_t columns) {
    if (line.size() <= columns) return line;
    const auto is_within = [&](std::size_t at) {
        return (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80;
    };
    while (columns > 0 && is_within(columns)) --columns;
    return line.substr(0, columns);
}

std::size_t terminal_columns() {
    constexpr std::size_t usual = 80;
    if (::isatty(STDOUT_FILENO) != 1) return usual;
    const std::size_t own = columns_of(STDOUT_FILENO);
    const std::size_t columns = own > 0 ? own : controlling_columns();
    return columns > 0 ? columns : usual;
}

}  // namespace lockstep
