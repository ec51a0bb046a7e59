// SPDX-License-Identifier: Apache-2.0
// Boxes are those of core/mpi_boxes.hpp; other texts are those of Error::text() and here() of this
// program.
#include "lockstep/core/mpi_boxes.hpp"

#include "logs/rank_log.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t longest_box = 64;
constexpr double longest_box_s = 5;

// A rank's stderr has a box that the rank wrote line by line: by the first of them it is known.
std::string first_of(const std::vector<std::string>& box) {
    const auto is_text = [](const std::string& line) {
        return !is_box_rule(line) && !is_blank_line(line);
    };
    const auto found = std::ranges::find_if(box, is_text);
    return found == box.end() ? "" : *found;
}

LauncherLine line_of_box(const std::vector<std::string>& box) {
    std::string title = box_title(box);
    if (const std::string rank = rank_of_end(title); !rank.empty())
        title = fmt::format("mpirun: process {} {}",
                            rank,
                            title.substr(std::min(title.find("exited on "), title.size())));
    return {.level = is_launcher_noise(title) ? Level::info : Level::warn,
            .text = fmt::format("{} ({} lines)", title, box.size()),
            .alike = first_of(box)};
}

// "[rank 3 on n1] warn: text" as here() shows it, and "warn: text" as once() does.
LauncherLine plain_line(double time_s, std::string_view text) {
    LauncherLine line{.time_s = time_s,
                      .level = is_launcher_noise(text) ? Level::info : Level::warn,
                      .text = std::string(text)};
    std::string_view said = text;
    if (const auto end = said.find("] "); said.starts_with("[rank ") && end != said.npos)
        said.remove_prefix(end + 2);
    for (const Level level : {Level::warn, Level::error}) {
        const std::string mark = fmt::format("{}: ", level_name(level));
        if (!said.starts_with(mark)) continue;
        line.level = level;
        line.alike = said.substr(mark.size());
        if (said.size() == text.size()) line.text = line.alike;
    }
    return line;
}

// "lockstep: error E213: what (rank 3 on n1)". A log has it without the ranks.
std::optional<LauncherLine> begun_error(double time_s, std::string_view text) {
    constexpr std::string_view mark = ": error E";
    const auto at = text.find(mark);
    const auto colon = at == text.npos ? at : text.find(": ", at + mark.size());
    if (colon == text.npos || text.substr(0, at).find(' ') != text.npos) return {};
    const auto code_at = at + mark.size() - 1;
    LauncherLine line{.time_s = time_s,
                      .level = Level::error,
                      .text = std::string(text.substr(colon + 2)),
                      .code = std::string(text.substr(code_at, colon - code_at))};
    const auto who = line.text.rfind(" (");
    const bool names_ranks = who != line.text.npos && line.text.back() == ')' &&
                             line.text.find("rank", who) != line.text.npos;
    line.alike = line.text.substr(0, names_ranks ? who : line.text.npos);
    return line;
}

}  // namespace

void LauncherFold::add(double time_s, std::string_view text) {
    constexpr std::string_view why = "  why: ";
    if (error_ && text.starts_with("  ")) {
        if (text.starts_with(why)) error_->why = text.substr(why.size());
        return;
    }
    close_error();
    if (!box_.empty() && (time_s > box_s_ + longest_box_s || box_.size() >= longest_box))
        close_box();
    const bool is_first_rule = box_.empty() && is_box_rule(text);
    if (is_first_rule) box_s_ = time_s;
    if (is_first_rule || (!box_.empty() && !(box_.size() == 1 && is_box_rule(text)))) {
        box_.emplace_back(text);
        if (!is_first_rule && is_box_rule(text)) close_box();
        return;
    }
    if (!box_.empty() || is_blank_line(text))
        return;  // a second rule begins a box as the first did
    error_ = begun_error(time_s, text);
    if (!error_) ready_.push_back(plain_line(time_s, text));
}

void LauncherFold::close_error() {
    if (error_) ready_.push_back(std::move(*error_));
    error_.reset();
}

// One that is not whole was none.
void LauncherFold::close_box() {
    std::vector<std::string> box = std::exchange(box_, {});
    if (box.size() > 1 && is_box_rule(box.back())) {
        ready_.push_back(line_of_box(box));
        ready_.back().time_s = box_s_;
        return;
    }
    for (const std::string& line : box)
        if (!is_box_rule(line) && !is_blank_line(line)) ready_.push_back(plain_line(box_s_, line));
}

void LauncherFold::finish() {
    close_error();
    close_box();
}

std::optional<LauncherLine> LauncherFold::take() {
    if (ready_.empty()) return {};
    LauncherLine line = std::move(ready_.front());
    ready_.pop_front();
    return line;
}

}  // namespace lockstep
