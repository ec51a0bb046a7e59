// SPDX-License-Identifier: Apache-2.0
// Nearly all that people read are lines as write_log() makes them, without an escape, with keys in
// one order: read_usual() takes these apart where they lie, in some 100 ns. What it does not know
// it leaves to the JSON parser; records for programs, which are long, are told by their name alone.
#include "logs/log_record.hpp"

#include "lockstep/core/json.hpp"

#include <charconv>

namespace lockstep {
namespace {

/// Goes through a line as long as it is as expected.
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

bool is_whole(std::string_view bytes) {
    return bytes.size() >= 2 && bytes.front() == '{' && bytes.back() == '}';
}

}  // namespace

RecordFate LogRecord::read(std::string_view bytes) {
    line = LogLine{};
    if (read_usual(bytes)) return RecordFate::line;
    if (!is_whole(bytes)) return RecordFate::damaged;
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
    const std::optional<Json> json = try_parse_json(bytes);
    const Json* const time = json ? json->find("t") : nullptr;
    if (!time || !time->is_number() || !is_time(time->get<double>())) return RecordFate::damaged;
    const auto text_of = [&](std::string_view key, std::string& kept) -> std::string_view {
        const Json* const found = json->find(key);
        kept = found && found->is_string() ? found->get<std::string>() : std::string();
        return kept;
    };
    line.time_s = time->get<double>();
    line.host = text_of("host", host);
    if (const auto event = event_in<ClockEvent>(*json)) {
        clock = *event;
        return RecordFate::clock;
    }
    if (const auto event = event_in<ErrorEvent>(*json)) {
        line.kind = LogKind::error;
        line.level = Level::error;
        line.code = text_of("code", code);
        line.text = text_of("what", text);
        line.why = text_of("why", why);
        line.fix = text_of("fix", fix);
        line.failed = event->ranks.value_or(std::vector<int>());
        return RecordFate::line;
    }
    line.text = text_of("text", text);
    if (const auto event = event_in<StderrEvent>(*json)) {
        line.kind = LogKind::captured;
        line.level = Level::warn;
        stderr_end = event->end;
        return RecordFate::line;
    }
    if (event_in<LauncherEvent>(*json)) {
        line.kind = LogKind::launcher;
        return RecordFate::line;
    }
    line.alike = text_of("alike", alike);
    line.is_for_all = json->contains("once");
    std::string word;
    line.level = level_named(text_of("level", word)).value_or(Level::info);
    return *json->find("event") == "log" && json->contains("text") ? RecordFate::line
                                                                   : RecordFate::damaged;
}

}  // namespace lockstep
