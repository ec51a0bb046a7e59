// SPDX-License-Identifier: Apache-2.0
// Nearly all lines for people have the form of write_log(), without an escape, with keys in one
// order: read_usual() parses these in place, in some 100 ns. Other lines go to the JSON parser;
// records for programs, which are long, are recognised by their name alone.
#include "logs/rank_log.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>

namespace lockstep {
namespace {

/// Parses a line as long as it has the expected form.
class Cursor {
  public:
    explicit Cursor(std::string_view bytes) : rest_(bytes) {}

    bool skip(std::string_view expected) {
        if (!rest_.starts_with(expected)) return false;
        rest_.remove_prefix(expected.size());
        return true;
    }

    /// Up to and without the closing quote; not where an escape is in it.
    bool text(std::string_view& found) {
        const auto end = rest_.find('"');
        if (end == rest_.npos) return false;
        found = rest_.substr(0, end);
        rest_.remove_prefix(end + 1);
        return found.find('\\') == found.npos;
    }

    template <class Number>
    bool number(Number& found) {
        const auto [end, problem] =
            std::from_chars(rest_.data(), rest_.data() + rest_.size(), found);
        if (problem != std::errc{}) return false;
        rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
        return true;
    }

    bool is_at_end() const { return rest_.empty(); }

  private:
    std::string_view rest_;
};

// No text has it: quotes in texts are escaped.
std::string_view event_name(std::string_view bytes) {
    constexpr std::string_view key = "\"event\":\"";
    const auto at = bytes.find(key);
    if (at == bytes.npos) return {};
    bytes.remove_prefix(at + key.size());
    return bytes.substr(0, bytes.find('"'));
}

// Up to the year 5138; also not where it is no number.
bool is_time(double time_s) {
    return time_s >= 0 && time_s < 1e11;
}

// A rank's first lines tell what is known of its clock.
constexpr std::size_t head_bytes = 4 << 10;

double time_in(std::string_view bytes, LogRecord& record) {
    const RecordFate fate = record.read(bytes);
    if (fate == RecordFate::line || fate == RecordFate::clock) return record.line.time_s;
    const auto json = fate == RecordFate::other ? try_parse_json(bytes) : std::nullopt;
    const Json* const time = json ? json->find("t") : nullptr;
    return time && time->is_number() ? time->get<double>()
                                     : std::numeric_limits<double>::quiet_NaN();
}

std::string text_of(const Json& json, std::string_view key) {
    const Json* const found = json.find(key);
    return found && found->is_string() ? found->get<std::string>() : std::string();
}

template <class Event>
bool take_event(const Json& json, LogEvent& found) {
    auto event = event_in<Event>(json);
    if (event) found = *std::move(event);
    return event.has_value();
}

template <>
bool take_event<SaidEvent>(const Json& json, LogEvent& found) {
    const Json* const name = json.find("event");
    if (!name || *name != SaidEvent::name || !json.contains("text")) return false;
    found = SaidEvent{.text = text_of(json, "text"),
                      .alike = text_of(json, "alike"),
                      .level = level_named(text_of(json, "level")).value_or(Level::info),
                      .is_for_all = json.contains("once")};
    return true;
}

template <class... Events>
LogEvent any_event_in(const Json& json, std::variant<std::monostate, Events...>) {
    LogEvent found;
    (take_event<Events>(json, found) || ...);
    return found;
}

}  // namespace

std::optional<LogEntry> log_entry_in(std::string_view line) {
    const std::optional<Json> json = try_parse_json(line);
    if (!json) return {};
    LogEntry entry{.host = text_of(*json, "host"), .event = any_event_in(*json, LogEvent())};
    const Json* const time = json->find("t");
    if (time && time->is_number()) entry.time_s = time->get<double>();
    return entry;
}

RecordFate LogRecord::read(std::string_view bytes) {
    line = LogLine{};
    if (read_usual(bytes)) return RecordFate::line;
    if (!bytes.starts_with('{') || !bytes.ends_with('}')) return RecordFate::damaged;
    const std::string_view name = event_name(bytes);
    const bool is_known = name == "log" || name == ErrorEvent::name || name == ClockEvent::name ||
                          name == StderrEvent::name || name == LauncherEvent::name;
    if (is_known) return read_any(bytes);
    return name.empty() ? RecordFate::damaged : RecordFate::other;
}

bool LogRecord::read_usual(std::string_view bytes) {
    Cursor at(bytes);
    std::string_view level;
    std::int64_t rank = 0, start = 0;
    if (!at.skip("{")) return false;
    if (at.skip("\"alike\":\"") && !(at.text(line.alike) && at.skip(","))) return false;
    if (!at.skip("\"event\":\"log\",\"host\":\"") || !at.text(line.host)) return false;
    if (!at.skip(",\"level\":\"") || !at.text(level)) return false;
    line.is_for_all = at.skip(",\"once\":true");
    if (!at.skip(",\"rank\":") || !at.number(rank)) return false;
    if (!at.skip(",\"start\":") || !at.number(start)) return false;
    if (!at.skip(",\"t\":") || !at.number(line.time_s)) return false;
    if (!at.skip(",\"text\":\"") || !at.text(line.text)) return false;
    if (!at.skip("}") || !at.is_at_end()) return false;
    const auto known = level_named(level);
    line.level = known.value_or(Level::info);
    return known.has_value() && is_time(line.time_s);
}

RecordFate LogRecord::read_any(std::string_view bytes) {
    line = LogLine{};
    auto entry = log_entry_in(bytes);
    if (!entry || !is_time(entry->time_s)) return RecordFate::damaged;
    entry_ = *std::move(entry);
    line.time_s = entry_.time_s;
    line.host = entry_.host;
    if (const auto* const measured = std::get_if<ClockEvent>(&entry_.event)) {
        clock = *measured;
        return RecordFate::clock;
    }
    if (const auto* const error = std::get_if<ErrorEvent>(&entry_.event)) {
        line.kind = LogKind::error;
        line.level = Level::error;
        line.code = error->code;
        line.text = error->what;
        line.why = error->why;
        line.fix = error->fix;
        line.failed = error->ranks.value_or(std::vector<int>());
    } else if (const auto* const captured = std::get_if<StderrEvent>(&entry_.event)) {
        line.kind = LogKind::captured;
        line.level = Level::warn;
        line.text = captured->text;
        stderr_end = captured->end;
    } else if (const auto* const launcher = std::get_if<LauncherEvent>(&entry_.event)) {
        line.kind = LogKind::launcher;
        line.text = launcher->text;
    } else if (const auto* const said = std::get_if<SaidEvent>(&entry_.event)) {
        line.text = said->text;
        line.alike = said->alike;
        line.level = said->level;
        line.is_for_all = said->is_for_all;
    } else {
        return RecordFate::damaged;
    }
    return RecordFate::line;
}

std::optional<int> rank_of_file(const fs::path& path, std::string_view extension) {
    const std::string name = path.filename().string();
    std::string_view digits(name);
    if (!digits.starts_with("rank-") || !digits.ends_with(extension)) return {};
    digits.remove_prefix(5);
    digits.remove_suffix(std::min(extension.size(), digits.size()));
    const auto rank = parse_integer(digits);
    if (!rank || *rank < 0 || *rank > std::numeric_limits<int>::max()) return {};
    return static_cast<int>(*rank);
}

bool is_launcher_file(const fs::path& path) {
    return path.filename().string().starts_with("launcher-") && path.extension() == ".jsonl";
}

RankLog::RankLog(fs::path path, int rank, const LogChoice& choice, LineLimits limits)
    : lines_(std::move(path),
             {limits.piece_bytes, limits.longest_line, limits.stays_open, UnendedLine::is_awaited}),
      choice_(choice),
      facts_{.rank = rank} {
    read_facts();
}

void RankLog::read_facts() {
    std::string head(head_bytes, '\0');
    head.resize(lines_.read_from(0, head));
    std::string_view rest(head);
    for (auto end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
        const RecordFate fate = record_.read(rest.substr(0, end));
        if (fate == RecordFate::line || fate == RecordFate::clock) facts_.host = record_.line.host;
        if (fate == RecordFate::clock) {
            facts_.clock_ahead_s = record_.clock.ahead_s;
            facts_.clock_error_s = record_.clock.error_s;
            return;
        }
        rest.remove_prefix(end + 1);
    }
}

// Times in a log go up: the place is looked for by halves, in the part that is wanted.
void RankLog::seek(double since_s) {
    constexpr std::uint64_t window = 64 << 10;
    std::error_code failed;
    const std::uint64_t size = fs::file_size(lines_.path(), failed);
    if (failed) return;
    std::uint64_t low = size - std::min(size, choice_.newest_bytes), high = size;
    if (since_s == -std::numeric_limits<double>::infinity()) high = low;
    std::string part(window, '\0');
    while (high - low > window) {
        const std::uint64_t middle = low + (high - low) / 2;
        const std::string_view found(part.data(),
                                     lines_.read_from(static_cast<std::int64_t>(middle), part));
        const auto begin = found.find('\n');
        const auto end = begin == found.npos ? begin : found.find('\n', begin + 1);
        if (end == found.npos) break;
        const double time_s = time_in(found.substr(begin + 1, end - begin - 1), record_);
        if (!(time_s - facts_.clock_ahead_s < since_s))
            high = middle;
        else
            low = middle;
    }
    lines_.choose(static_cast<std::int64_t>(low));
}

bool RankLog::is_wanted() const {
    return record_.line.level >= choice_.least && record_.line.time_s >= choice_.since_s &&
           (choice_.node.empty() || choice_.node == record_.line.host);
}

bool RankLog::take(std::string_view bytes) {
    const RecordFate fate = record_.read(bytes);
    if (fate == RecordFate::damaged) ++damaged_;
    if (fate == RecordFate::clock) {
        facts_.host = record_.line.host;
        facts_.clock_ahead_s = record_.clock.ahead_s;
        facts_.clock_error_s = record_.clock.error_s;
    }
    if (fate != RecordFate::line) return false;
    LogLine& line = record_.line;
    line.rank = facts_.rank;
    last_s_ = line.time_s = std::max(line.time_s - facts_.clock_ahead_s, last_s_);
    if (line.kind != LogKind::launcher) return is_wanted();
    facts_.host = line.host;
    launcher_.add(line.time_s, line.text);
    return take_launcher_line();
}

bool RankLog::take_launcher_line() {
    while (auto next = launcher_.take()) {
        launcher_line_ = std::move(*next);
        record_.line = {.time_s = launcher_line_.time_s,
                        .rank = no_rank,
                        .level = launcher_line_.level,
                        .kind = LogKind::launcher,
                        .host = facts_.host,
                        .text = launcher_line_.text,
                        .alike = launcher_line_.alike,
                        .code = launcher_line_.code,
                        .why = launcher_line_.why};
        if (is_wanted()) return true;
    }
    return false;
}

bool RankLog::advance() {
    if (!std::exchange(has_begun_, true)) seek(choice_.since_s);
    if (take_launcher_line()) return true;
    while (const auto bytes = lines_.next())
        if (take(*bytes)) return true;
    return word_ && take_words();
}

// If only the log's end was read, the place in stderr is unknown.
void RankLog::take_last_words() {
    constexpr std::uint64_t most = 64 << 10, most_guessed = 4 << 10;
    if (word_) return;
    word_ = 0;
    if (facts_.rank == no_rank) return launcher_.finish();
    fs::path path = lines_.path();
    path.replace_extension(".stderr");
    std::error_code failed;
    const std::uint64_t size = fs::file_size(path, failed);
    std::uint64_t from = record_.stderr_end;
    if (failed || size <= from) return;
    last_s_ = std::max(last_s_,
                       1e-9 * static_cast<double>(file_stamp(path).time_ns) - facts_.clock_ahead_s);
    from = std::max(from, size - std::min(size, from > 0 ? most : most_guessed));
    const UniqueFd fd = open_for_reading(path);
    words_.resize(static_cast<std::size_t>(size - from));
    words_.resize(read_at(fd.value(), std::as_writable_bytes(std::span(words_)), from, path));
}

bool RankLog::take_words() {
    if (facts_.rank == no_rank) return take_launcher_line();
    while (*word_ < words_.size()) {
        const std::size_t end = std::min(words_.find('\n', *word_), words_.size());
        record_.line = {.time_s = last_s_,
                        .rank = facts_.rank,
                        .level = Level::warn,
                        .kind = LogKind::captured,
                        .host = facts_.host,
                        .text = std::string_view(words_).substr(*word_, end - *word_)};
        word_ = end + 1;
        if (!record_.line.text.empty() && is_wanted()) return true;
    }
    return false;
}

LogLines::LogLines(fs::path path, const LineLimits& limits)
    : path_(std::move(path)), limits_(limits) {}

UniqueFd LogLines::open() const {
    try {
        return open_for_reading(path_);
    } catch (const Error& error) {
        if (kind_of(error) == ErrorKind::file_missing) return {};  // it may come
        throw;
    }
}

std::size_t LogLines::read_from(std::int64_t offset, std::span<char> into) {
    UniqueFd opened;
    if (!fd_) opened = open();
    const UniqueFd& fd = fd_ ? fd_ : opened;
    if (!fd) return 0;
    const std::size_t got = read_at(
        fd.value(), std::as_writable_bytes(into), static_cast<std::uint64_t>(offset), path_);
    if (opened && limits_.stays_open) fd_ = std::move(opened);
    return got;
}

std::int64_t LogLines::size() {
    if (!fd_) fd_ = open();
    if (!fd_) return 0;
    const auto bytes = static_cast<std::int64_t>(file_stamp(path_).bytes);
    if (!limits_.stays_open) fd_ = {};
    return bytes;
}

void LogLines::choose(std::int64_t from, std::int64_t to) {
    offset_ = line_at_ = std::max<std::int64_t>(from, 0);
    to_ = to;
    begin_ = end_ = searched_ = 0;
    skips_line_ = offset_ > 0;
}

bool LogLines::fill() {
    if (begin_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        searched_ -= begin_;
        begin_ = 0;
    }
    if (end_ == 0 && buffer_.size() > limits_.piece_bytes) {
        buffer_.resize(limits_.piece_bytes);
        buffer_.shrink_to_fit();
    }
    if (end_ == buffer_.size()) buffer_.resize(std::max(limits_.piece_bytes, 2 * buffer_.size()));
    const std::size_t got = read_from(offset_, std::span(buffer_).subspan(end_));
    end_ += got;
    offset_ += static_cast<std::int64_t>(got);
    return got > 0;
}

// A file may be one line of a terabyte, which takes no room where it is zeros: its end may have
// more.
void LogLines::leave_endless_line() {
    constexpr std::int64_t most = 64 << 20, end_bytes = 64 << 10;
    begin_ = end_;
    if (offset_ - line_at_ < most) return;
    std::error_code failed;
    const auto size = static_cast<std::int64_t>(fs::file_size(path_, failed));
    if (!failed && size > offset_ + end_bytes) offset_ = size - end_bytes;
    line_at_ = offset_;
}

std::optional<std::string_view> LogLines::unended() {
    if (limits_.last == UnendedLine::is_awaited || skips_line_ || begin_ == end_) return {};
    const std::string_view line(buffer_.data() + begin_, end_ - begin_);
    begin_ = searched_ = end_;
    return line;
}

std::optional<std::string_view> LogLines::next() {
    for (;;) {
        if (offset_ - static_cast<std::int64_t>(end_ - begin_) >= to_) return {};
        const void* const found =
            end_ > searched_ ? std::memchr(buffer_.data() + searched_, '\n', end_ - searched_)
                             : nullptr;
        if (found) {
            const auto at =
                static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
            const std::string_view line(buffer_.data() + begin_, at - begin_);
            begin_ = searched_ = at + 1;
            const bool is_end_of_long = std::exchange(skips_line_, false);
            if (!is_end_of_long && line.size() <= limits_.longest_line) return line;
            passed_over_ += is_end_of_long ? 0 : 1;
            continue;
        }
        searched_ = end_;
        if (end_ - begin_ > limits_.longest_line) {
            passed_over_ += skips_line_ ? 0 : 1;
            if (!std::exchange(skips_line_, true)) line_at_ = offset_;
        }
        if (skips_line_) leave_endless_line();
        if (!fill()) return unended();
    }
}

}  // namespace lockstep
