// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"

#include "stderr_capture.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> level_names{"debug", "info", "warn", "error"};

// One write() per line, so that lines of several threads and processes never mix. Failures to log
// are not errors of the run: they are returned as errno, else 0.
int put(int fd, std::string_view text) {
    return try_write_all(fd, std::as_bytes(std::span(text)));
}

// Returns the text for a process without a launcher; a launcher reports its ranks' end itself.
std::string crash_text(const LogTarget& target) {
    if (target.world_size > 1) return "";
    const fs::path run = target.directory.parent_path().parent_path();
    return fmt::format(
        "lockstep: the process crashed, and has not saved: 'lockstep logs {} --first-error' shows "
        "its last words\n",
        shell_word(run.string()));
}

// One that obeys no escapes would show them: editors and builds have such.
bool is_dumb_terminal() {
    return Environment().text("TERM").value_or("") == "dumb";
}

class Sink {
  public:
    static Sink& instance() {
        static Sink sink;
        return sink;
    }

    void open(const LogTarget& target) {
        capture_.reset();  // it may still have a line to log
        const std::lock_guard lock(mutex_);
        target_ = target;
        unprinted_ = 0;
        is_lost_ = false;
        text_.reset();
        json_.reset();
        if (target.directory.empty()) return;
        make_own_folder(target.directory);
        const std::string stem = fmt::format("rank-{:05}", target.rank);
        text_ = open_append(target.directory / (stem + ".log"));
        json_ = open_append(target.directory / (stem + ".jsonl"));
        if (!target.keeps_stderr) return;
        capture_ = std::make_unique<StderrCapture>(
            target.directory / (stem + ".stderr"),
            crash_text(target),
            [this](std::string_view text, std::uint64_t end) {
                event("stderr", {{"text", printable(text)}, {"end", end}});
            });
    }

    // Without the lock: a drain logs.
    void write_error(std::string_view text) {
        if (capture_) capture_->drain();
        put(StderrCapture::before(), text);
    }

    void line(Level level, Audience audience, const std::string& text, std::string_view alike) {
        const std::lock_guard lock(mutex_);
        add_line(level, audience, text, alike);
    }

    void event(std::string_view name, Json fields) {
        const std::lock_guard lock(mutex_);
        fields["event"] = name;
        if (json_) put(json_.value(), record(unix_time_s(), std::move(fields)));
    }

    void print(std::string_view text) {
        const std::lock_guard lock(mutex_);
        if (target_.rank != 0) return;
        clear_live();
        if (const int reason = say(text)) unprinted_ = reason;
        if (text_) put(text_.value(), text);
    }

    int unprinted() {
        const std::lock_guard lock(mutex_);
        return unprinted_;
    }

    void live(std::string_view text) {
        const std::lock_guard lock(mutex_);
        if (!live_terminal()) return;
        clear_live();
        say(text);
        live_shown_ = !text.empty();
    }

    bool live_terminal() const {
        return target_.rank == 0 && target_.shows_live && ::isatty(STDOUT_FILENO) == 1 &&
               !is_dumb_terminal();
    }

  private:
    void add_line(Level level, Audience audience, const std::string& text, std::string_view alike) {
        if (audience == Audience::once && target_.rank != 0) return;
        const double time = unix_time_s();
        if (text_)
            put(text_.value(),
                fmt::format("{} {:5} {}\n", utc_text(time), level_name(level), text));
        if (json_) put(json_.value(), line_record(time, level, audience, text, alike));
        if (reaches_terminal(level, audience)) show(level, audience, text);
    }

    // To stdout. Returns errno, else 0. That it takes no more is news for the log, once.
    int say(std::string_view text) {
        const int reason = put(STDOUT_FILENO, text);
        if (reason != 0 && reason != EAGAIN && text_ && !std::exchange(is_lost_, true))
            add_line(Level::warn, Audience::here, lost_stdout_text(reason), {});
        return reason;
    }

    std::string line_record(double time,
                            Level level,
                            Audience audience,
                            const std::string& text,
                            std::string_view alike) const {
        Json fields = {{"event", "log"}, {"level", level_name(level)}, {"text", text}};
        if (!alike.empty())
            fields["alike"] = alike;
        else if (audience == Audience::once)
            fields["once"] = true;
        return record(time, std::move(fields));
    }

    // Readers of many logs go by the order of the keys.
    std::string record(double time, Json fields) const {
        fields["t"] = time;
        fields["rank"] = target_.rank;
        fields["host"] = target_.host;
        fields["start"] = target_.start;
        fields.sort_keys();
        return fields.dump() + "\n";
    }

    bool reaches_terminal(Level level, Audience audience) const {
        if (level < target_.terminal_level) return false;
        return audience == Audience::once || level >= Level::warn;
    }

    void show(Level level, Audience audience, const std::string& text) {
        clear_live();
        std::string from;
        if (audience == Audience::here && target_.world_size > 1)
            from = fmt::format("[rank {} on {}] ", target_.rank, target_.host);
        const std::string mark = level >= Level::warn ? fmt::format("{}: ", level_name(level)) : "";
        if (level >= Level::warn)
            put(StderrCapture::before(), from + mark + text + "\n");
        else
            say(from + text + "\n");
    }

    void clear_live() {
        if (std::exchange(live_shown_, false)) say("\r\033[K");
    }

    std::mutex mutex_;
    LogTarget target_;
    UniqueFd text_, json_;
    bool live_shown_ = false;
    int unprinted_ = 0;                       // errno of a print() that failed
    bool is_lost_ = false;                    // the log says that stdout takes no more
    std::unique_ptr<StderrCapture> capture_;  // the first to go: it logs to its end
};

// Made before main(), so that it outlives what exit() calls: ForeignEnd still tells by it.
[[maybe_unused]] const Sink& made_early = Sink::instance();

// Returns the bytes of a character by its first byte, as far as the others are there; 1 for other
// bytes.
std::size_t character_bytes(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const std::size_t bytes = byte(0) < 0xC2   ? 1
                              : byte(0) < 0xE0 ? 2
                              : byte(0) < 0xF0 ? 3
                              : byte(0) < 0xF5 ? 4
                                               : 1;
    if (text.size() < bytes) return 1;
    for (std::size_t i = 1; i < bytes; ++i)
        if ((byte(i) & 0xC0) != 0x80) return 1;
    return bytes;
}

// U+2028 and U+2029 end lines; U+202A to U+202E and U+2066 to U+2069 change the order of letters,
// so that a name reads as another.
bool reorders_text(char32_t letter) {
    return (letter >= 0x2028 && letter <= 0x202E) || (letter >= 0x2066 && letter <= 0x2069);
}

enum class LineFeeds { as_spaces, kept };

std::string without_controls(std::string_view text, LineFeeds line_feeds) {
    std::string clean;
    clean.reserve(text.size());
    while (!text.empty()) {
        const Character first = first_character(text);
        if (first.letter == '\n' && line_feeds == LineFeeds::as_spaces)
            clean += ' ';
        else if (first.is_control)
            clean += '?';
        else
            clean += text.substr(0, first.bytes);
        text.remove_prefix(first.bytes);
    }
    return clean;
}

}  // namespace

std::string_view level_name(Level level) {
    return level_names.at(static_cast<std::size_t>(level));
}

std::optional<Level> level_named(std::string_view name) {
    const auto found = std::ranges::find(level_names, name);
    if (found == level_names.end()) return {};
    return static_cast<Level>(found - level_names.begin());
}

void open_log(const LogTarget& target) {
    Sink::instance().open(target);
}

void write_log(Level level, Audience audience, std::string_view text, std::string_view alike) {
    Sink::instance().line(level, audience, printable(text), alike);
}

void log_event(std::string_view name, Json fields) {
    Sink::instance().event(name, std::move(fields));
}

int error_descriptor() {
    return StderrCapture::before();
}

void write_error(std::string_view text) {
    Sink::instance().write_error(printable_lines(text));
}

void print_once(std::string_view text) {
    Sink::instance().print(printable_lines(text));
}

std::string lost_stdout_text(int reason) {
    return fmt::format("stdout {}: the training continues, and its output is in its log",
                       reason == EPIPE
                           ? "is closed"
                           : fmt::format("cannot be written ({})", std::strerror(reason)));
}

void check_printed() {
    const int reason = Sink::instance().unprinted();
    check(reason == 0 || reason == EPIPE, [&] { return system_error("write", "stdout", reason); });
}

void show_live(std::string_view text) {
    Sink::instance().live(printable(text));
}

bool has_live_terminal() {
    return Sink::instance().live_terminal();
}

// Control characters are single bytes, and in UTF-8 also the pairs C2 80 to C2 9F, of which C2 9B
// opens an escape sequence as ESC [ does. In other character sets these are the bytes 80 to 9F.
Character first_character(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    const bool is_layout = first == '\t' || first == '\n';
    if (first < 0x80) return {1, first, (first < 0x20 && !is_layout) || first == 0x7F};
    const std::size_t bytes = character_bytes(text);
    if (bytes == 1) return {1, first, first < 0xA0};
    char32_t letter = first & (0x7Fu >> bytes);
    for (std::size_t i = 1; i < bytes; ++i)
        letter = letter << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
    return {bytes, letter, letter < 0xA0 || reorders_text(letter)};
}

std::string printable(std::string_view text) {
    return without_controls(text, LineFeeds::as_spaces);
}

std::string printable_lines(std::string_view text) {
    return without_controls(text, LineFeeds::kept);
}

std::string listed(const std::vector<std::string>& texts) {
    constexpr std::size_t most = 20;
    std::string text;
    for (std::size_t i = 0; i < std::min(texts.size(), most); ++i)
        text += (i == 0 ? "" : ", ") + printable(texts[i]);
    return texts.size() > most ? text + fmt::format(" and {} more", grouped(texts.size() - most))
                               : text;
}

}  // namespace lockstep
