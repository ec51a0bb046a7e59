// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/mpi_boxes.hpp"

#include "launcher.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t width_of_rule = 74, longest_box = 64, longest_held = 4096;

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
    try_write_all(fd, std::as_bytes(std::span(text)));
}

std::string record_of(std::int64_t start, std::string_view text) {
    Json record = {{"event", "launcher"}, {"t", unix_time_s()}, {"rank", nullptr}};
    record["host"] = host_name();
    record["start"] = start;
    record["text"] = printable(text);
    record.sort_keys();
    return record.dump() + "\n";
}

// Returns nothing if this kernel has no such lists.
std::optional<std::vector<pid_t>> listed_children(pid_t parent) {
    std::vector<pid_t> found;
    std::error_code gone;
    bool is_listed = false;
    for (const auto& thread : fs::directory_iterator(fmt::format("/proc/{}/task", parent), gone)) {
        std::ifstream list(thread.path() / "children");
        is_listed = is_listed || list.is_open();
        for (pid_t child = 0; list >> child;) found.push_back(child);
    }
    if (!is_listed) return {};
    return found;
}

bool lives(pid_t pid) {
    const std::string stat = text_of(fmt::format("/proc/{}/stat", pid));
    const auto name_end = stat.rfind(')');  // "4711 (mpirun) S 1 ..."
    if (name_end == stat.npos || name_end + 2 >= stat.size()) return false;
    return stat[name_end + 2] != 'Z' && stat[name_end + 2] != 'X';
}

// Kills children that are not in `kept` and reaps them. Returns whether there were any.
bool end_children(const std::vector<pid_t>& kept) {
    bool found = false;
    for (const pid_t child : listed_children(::getpid()).value_or(kept)) {
        if (std::ranges::find(kept, child) != kept.end()) continue;
        found = true;
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, WNOHANG);
    }
    return found;
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
    // A program's own table may have rules of another width.
    const bool is_rule = line.size() == width_of_rule && is_box_rule(line);
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

bool LauncherProcess::has_ended() {
    has_ended_ = has_ended_ || ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return has_ended_;
}

void LauncherProcess::send(int signal) const {
    if (has_ended_) return;
    ::kill(pid_, signal);
    ::kill(pid_, SIGCONT);
}

std::optional<bool> LauncherProcess::has_living_children() const {
    const auto children = listed_children(pid_);
    if (!children) return {};
    return std::ranges::any_of(*children, lives);
}

OrphanWatch::OrphanWatch() : before_(listed_children(::getpid()).value_or(std::vector<pid_t>())) {
    ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper_before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

OrphanWatch::~OrphanWatch() {
    constexpr double patience_s = 5;
    for (const double begin_s = now_s(); end_children(before_) && now_s() - begin_s < patience_s;)
        ::usleep(1'000);
    ::prctl(PR_SET_CHILD_SUBREAPER, subreaper_before_);
}

bool is_ready(int fd, short events) {
    pollfd asked{fd, events, 0};
    return fd >= 0 && ::poll(&asked, 1, 0) > 0 && asked.revents != 0;
}

PassedPipe::PassedPipe(UniqueFd pipe, int target, Change change)
    : pipe_(std::move(pipe)), target_(target), change_(std::move(change)) {
    constexpr int room = 1 << 20;  // for what comes while this process is stopped
    if (pipe_) ::fcntl(pipe_.value(), F_SETPIPE_SZ, room);
}

pollfd PassedPipe::awaited() const {
    if (!unsent_.empty()) return {target_, POLLOUT, 0};
    return {pipe_.value(), POLLIN, 0};
}

void PassedPipe::move() {
    std::array<char, PIPE_BUF> buffer;
    if (unsent_.empty() && is_ready(pipe_.value(), POLLIN)) {
        const ssize_t got = ::read(pipe_.value(), buffer.data(), buffer.size());
        if (got == 0) pipe_.reset();
        if (got <= 0) return;
        unsent_ = change_({buffer.data(), static_cast<std::size_t>(got)});
    }
    if (unsent_.empty() || !is_ready(target_, POLLOUT)) return;
    const ssize_t wrote = ::write(target_, unsent_.data(), unsent_.size());
    if (wrote > 0) unsent_.erase(0, static_cast<std::size_t>(wrote));
    if (wrote >= 0 || errno == EINTR || errno == EAGAIN) return;
    if (failure_ == 0) failure_ = errno;
    unsent_.clear();  // nobody is there, or the disk is full
}

void PassedPipe::add(const std::function<std::string()>& text) {
    if (unsent_.empty()) unsent_ = text();
}

bool PassedPipe::has_more() const {
    pollfd asked{pipe_.value(), POLLIN, 0};
    return !unsent_.empty() || (pipe_ && ::poll(&asked, 1, 0) > 0 && (asked.revents & POLLIN) != 0);
}

}  // namespace lockstep
