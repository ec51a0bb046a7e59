// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/step_line.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep {
namespace {

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
                            report.loss,
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
