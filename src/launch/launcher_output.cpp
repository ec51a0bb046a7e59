// SPDX-License-Identifier: Apache-2.0
#include "launcher_output.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/mpi_boxes.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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

constexpr std::size_t longest_line = 16 << 10;
constexpr std::uintmax_t most_of_all_launches = 4 << 20;  // limit if start after start fails

// A disk that is full is no error of the run.
void write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t wrote = ::write(fd, text.data(), text.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(wrote));
    }
}

std::string record_of(std::int64_t start, std::string_view text) {
    Json record = {{"event", "launcher"}, {"t", unix_time_s()}, {"rank", nullptr}};
    record["host"] = host_name();
    record["start"] = start;
    record["text"] = printable(text);
    record.sort_keys();
    return record.dump() + "\n";
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
        if (box_.size() > 1 && is_rule) {
            if (ended_rank_.empty()) ended_rank_ = rank_of_end(box_title(box_));
            shown += shown_box(std::exchange(box_, {}));
        } else if (box_.size() >= longest_box) {
            shown += rest();
        }
    }
}

LauncherOutput::LauncherOutput(UniqueFd pipe, LauncherLog log, const KeptOutput& limits)
    : pipe_signal_before_(pipe ? std::signal(SIGPIPE, SIG_IGN) : SIG_ERR),
      pipe_(std::move(pipe), STDERR_FILENO, [&](std::string_view come) { return take(come); }),
      log_(std::move(log)),
      limits_(limits),
      head_left_(limits.head_bytes) {}

LauncherOutput::~LauncherOutput() {
    if (const std::string rest = boxes_.rest(); is_ready(STDERR_FILENO, POLLOUT))
        write_all(STDERR_FILENO, rest);
    if (pipe_signal_before_ != SIG_ERR) std::signal(SIGPIPE, pipe_signal_before_);
    try {
        if (!line_.empty()) keep(line_);
        if (!file_ && !head_.empty()) place(log_.folder(LaunchState::over));
        if (!file_) return;
        if (left_out_ > tail_.size())
            write_all(file_.value(),
                      record_of(log_.start,
                                fmt::format("({} lines were not kept)", left_out_ - tail_.size())));
        for (const std::string& record : tail_) write_all(file_.value(), record);
    } catch (const std::exception&) {  // it was passed on
    }
}

std::string LauncherOutput::take(std::string_view come) {
    if (log_.folder) take_lines(come);
    is_quiet_ = false;
    return boxes_.pass(come);
}

void LauncherOutput::settle() {
    if (std::exchange(is_quiet_, true)) pipe_.add([&] { return boxes_.rest(); });
    if (file_ || head_.empty()) return;
    try {
        place(log_.folder(LaunchState::going_on));
    } catch (const std::exception&) {  // perhaps later
    }
}

void LauncherOutput::note(const std::string& line) {
    if (is_ready(STDERR_FILENO, POLLOUT)) write_all(STDERR_FILENO, line + "\n");
    if (log_.folder) take_lines(line + "\n");
}

void LauncherOutput::take_lines(std::string_view bytes) {
    for (const char c : bytes) {
        if (c != '\n') line_ += c;
        if (c != '\n' && line_.size() < longest_line) continue;
        keep(line_);
        line_.clear();
    }
    if (file_) write_head();
}

void LauncherOutput::keep(std::string_view line) {
    std::string record = record_of(log_.start, line);
    if (left_out_ == 0 && record.size() <= head_left_) {
        head_left_ -= record.size();
        head_ += record;
        return;
    }
    ++left_out_;
    tail_bytes_ += record.size();
    tail_.push_back(std::move(record));
    for (; tail_bytes_ > limits_.tail_bytes; tail_.pop_front()) tail_bytes_ -= tail_.front().size();
}

void LauncherOutput::place(const fs::path& folder) {
    std::error_code unseen;
    if (folder.empty() || fs::is_symlink(folder.parent_path(), unseen)) return;  // ranks refuse it
    make_own_folder(folder);
    const fs::path path = folder / fmt::format("launcher-{}.jsonl", host_name());
    std::error_code missing;
    const auto size = fs::file_size(path, missing);
    if (!missing && size > most_of_all_launches) return;
    file_ = open_for_writing(path, O_WRONLY | O_CREAT | O_APPEND);
    if (file_) write_head();
}

void LauncherOutput::write_head() {
    write_all(file_.value(), head_);
    head_.clear();
}

}  // namespace lockstep
