// SPDX-License-Identifier: Apache-2.0
#include "runs/log_view.hpp"

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/signals.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include <unistd.h>

namespace lockstep {
namespace {

/// Lines on their way from a fold to the output.
class Shown {
  public:
    Shown(const LogView& view, Output& out) : view_(view), text_(view.style), out_(out) {}

    void operator()(const FoldedLine& line) {
        if (view_.diff_rank >= 0)
            compare(line);
        else
            put(line, "");
    }

  private:
    // Missing is what most of the others say: not what one of them says of itself, or rank 0 for
    // all.
    void compare(const FoldedLine& line) {
        const std::size_t others = static_cast<std::size_t>(view_.style.ranks) - 1;
        if (line.is_for_all) return;
        if (line.has(view_.diff_rank)) {
            if (line.count() == 1) put(line, "+ ");
        } else if (line.count() * 2 > others) {
            put(line, "- ");
        }
    }

    void put(const FoldedLine& line, std::string_view mark) {
        if (view_.is_json)
            put_json(line, mark);
        else
            text_.append(out_.text, line, mark);
        out_.pass();
    }

    void put_json(const FoldedLine& line, std::string_view mark) {
        constexpr std::string_view kinds[] = {"said", "error", "stderr", "launcher"};
        Json json = {{"t", line.time_s},
                     {"level", level_name(line.level)},
                     {"kind", kinds[static_cast<std::size_t>(line.kind)]},
                     {"text", plain_text(line.text)}};
        json["ranks"] = line.ranks();
        if (line.is_for_all) json["once"] = true;
        if (line.kind == LogKind::launcher) json["from"] = "launcher";
        if (line.times > 1) json["times"] = line.times;
        if (line.count() <= 1) json["host"] = plain_text(line.host);
        if (!line.code.empty()) json["code"] = plain_text(line.code);
        if (!line.why.empty()) json["why"] = plain_text(line.why);
        if (!mark.empty()) json["differs"] = mark.substr(0, 1);
        out_.text += json.dump() + "\n";
    }

    const LogView& view_;
    LogText text_;
    Output& out_;
};

/// Of the comparison of a rank with the others: the distance of lines in time, and their number.
FoldLimits limits_of(const LogView& view) {
    if (view.diff_rank < 0) return {};
    return {.window_s = 60, .most_lines = std::size_t{64} << 10, .most_bytes = 64u << 20};
}

bool is_stopped(const Output& out) {
    return out.is_closed || stop_requested() != StopRequest::none;
}

/// All that there is now. Returns the latest time of a line.
double add_all(LogMerge& merge, LogFold& fold, const Output& out) {
    double latest_s = -std::numeric_limits<double>::infinity();
    while (!is_stopped(out)) {
        const LogLine* const line = merge.next();
        if (!line) break;
        latest_s = std::max(latest_s, line->time_s);
        fold.add(*line);
    }
    return latest_s;
}

}  // namespace

void Output::pass() {
    constexpr std::size_t piece_bytes = 64 << 10;
    if (text.size() >= piece_bytes) flush();
}

void Output::flush() {
    std::string_view rest(text);
    while (!rest.empty() && !is_closed) {
        const ssize_t wrote = ::write(STDOUT_FILENO, rest.data(), rest.size());
        if (wrote < 0 && errno == EINTR) continue;
        is_closed = wrote < 0 && errno == EPIPE;
        if (wrote < 0 && !is_closed) throw system_error("write", "stdout", errno);
        if (wrote > 0) rest.remove_prefix(static_cast<std::size_t>(wrote));
    }
    text.clear();
}

Colours colours_of_stdout() {
    const Environment environment;
    const bool is_unwanted = !environment.text("NO_COLOR").value_or("").empty() ||
                             environment.text("TERM").value_or("dumb") == "dumb";
    return !is_unwanted && ::isatty(STDOUT_FILENO) == 1 ? Colours::on : Colours::off;
}

std::uint64_t show_logs(const fs::path& folder, const LogView& view, Output& out) {
    LogMerge merge(folder, view.choice);
    LogFold fold(limits_of(view), Shown(view, out));
    add_all(merge, fold, out);
    if (view.is_over) {
        merge.take_last_words();
        add_all(merge, fold, out);
    }
    fold.finish();
    return merge.damaged();
}

// Lines that were there at one look are earlier than those that only the next one finds, but for
// the moment that a look lasts: they wait not for others to be in order, but for their equals.
std::uint64_t follow_logs(const fs::path& folder,
                          const LogView& view,
                          const std::function<bool()>& is_over,
                          Output& out) {
    constexpr std::chrono::milliseconds pause(200);
    std::array<double, 5> seen;  // the latest time at each of the looks of the last second
    seen.fill(-std::numeric_limits<double>::infinity());
    double latest_s = seen.front();
    LogMerge merge(folder, view.choice);
    LogFold fold(limits_of(view), Shown(view, out));
    bool was_over = false;
    for (std::size_t look = 0; !is_stopped(out); ++look) {
        latest_s = std::max(latest_s, add_all(merge, fold, out));
        const double second_ago_s = std::exchange(seen[look % seen.size()], latest_s);
        fold.pass(second_ago_s + limits_of(view).window_s + 1e-6);
        out.flush();
        if (was_over) break;
        was_over = look % seen.size() == 0 && is_over();
        if (!was_over) std::this_thread::sleep_for(pause);
        merge.look_again();
    }
    if (was_over) {
        merge.take_last_words();
        add_all(merge, fold, out);
    }
    fold.finish();
    out.flush();
    return merge.damaged();
}

}  // namespace lockstep
