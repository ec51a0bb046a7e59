// SPDX-License-Identifier: Apache-2.0
#include "launcher_boxes.hpp"

#include "lockstep/core/mpi_boxes.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t width_of_rule = 74, longest_box = 64, longest_held = 4096;

// A program's own table may have rules of another width.
bool is_open_mpis_rule(std::string_view line) {
    return line.size() == width_of_rule && is_box_rule(line);
}

// A rule, "[n1:4711] 1 more process has sent help message ...", "mpirun: Forwarding signal ..." or
// the blank that prterun writes behind a box.
bool may_be_open_mpis(std::string_view beginning) {
    constexpr std::string_view own = "mpirun: ";
    const bool is_rule =
        beginning.size() <= width_of_rule && beginning.find_first_not_of('-') == beginning.npos;
    return is_rule || beginning.starts_with('[') || is_blank_line(beginning) ||
           beginning.starts_with(own.substr(0, beginning.size()));
}

std::string shown_box(const std::vector<std::string>& box) {
    std::string text;
    if (is_launcher_noise(box_title(box))) return text;
    for (const std::string& line : box)
        if (!is_box_rule(line) && !is_blank_line(line))
            text += (text.empty() ? "Open MPI: " : "  ") + line + "\n";
    return text;
}

}  // namespace

std::string LauncherBoxes::pass(std::string_view bytes) {
    std::string shown;
    for (const char c : bytes) take(c, shown);
    return shown;
}

std::string LauncherBoxes::rest() {
    std::string kept;
    for (const std::string& line : std::exchange(box_, {})) kept += line + "\n";
    if (!is_blank_line(line_)) kept += line_;
    is_shown_ = is_shown_ || !line_.empty();
    line_.clear();
    return kept;
}

void LauncherBoxes::take(char c, std::string& shown) {
    if (is_shown_) {
        shown += c;
        is_shown_ = c != '\n';
        return;
    }
    if (c == '\n') return end_line(shown);
    line_ += c;
    const bool is_kept = (!box_.empty() || may_be_open_mpis(line_)) && line_.size() < longest_held;
    if (!is_kept) shown += rest();
}

void LauncherBoxes::end_line(std::string& shown) {
    const std::string line = std::exchange(line_, {});
    const bool is_rule = is_open_mpis_rule(line);
    if (box_.empty() && !is_rule) {
        if (!is_launcher_noise(line)) shown += line + "\n";
    } else if (box_.size() == 1 && is_rule) {
        return;  // the first one was the last of a box that had no beginning
    } else {
        box_.push_back(line);
        if (box_.size() > 1 && is_rule)
            shown += shown_box(std::exchange(box_, {}));
        else if (box_.size() >= longest_box)
            shown += rest();
    }
}

}  // namespace lockstep
