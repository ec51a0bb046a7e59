// SPDX-License-Identifier: Apache-2.0
// Lines that wait in a fold are in a ring in order of time. A table of hashes leads to the newest
// of each text; a slot whose line has left the ring is free, so that nothing is ever removed from
// it.
#include "lockstep/run/log_text.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t longest_label = 32, level_width = 5;
constexpr std::string_view dim = "\033[2m", yellow = "\033[33m", red = "\033[1;31m",
                           usual = "\033[0m";

bool needs_care(std::string_view text) {
    unsigned found = 0;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        found |= static_cast<unsigned>(byte < 0x20) | static_cast<unsigned>(byte >= 0x7F);
    }
    return found != 0;
}

// Returns the length of the escape sequence with which `text` begins (ECMA-48); 0: there is none.
std::size_t escape_length(std::string_view text) {
    if (text.size() < 2 || text[0] != '\033') return 0;
    const auto is_within = [](char c, char first, char last) { return c >= first && c <= last; };
    std::size_t at = 2;
    if (text[1] == '[') {
        while (at < text.size() && is_within(text[at], 0x20, 0x3F)) ++at;
        return std::min(at + 1, text.size());
    }
    if (text[1] != ']') return 2;
    while (at < text.size() && text[at] != '\007' && text[at] != '\033') ++at;
    const bool is_two = at + 1 < text.size() && text[at] == '\033' && text[at + 1] == '\\';
    return std::min(at + (is_two ? 2 : 1), text.size());
}

std::string_view colour_of(Level level) {
    return level == Level::error ? red : level == Level::warn ? yellow : std::string_view();
}

constexpr std::size_t most_probes = 8;
constexpr std::size_t slots_per_line = 4;
constexpr std::size_t kept_capacity = 4 << 10;  // capacity of a text that is kept for the next one

std::string_view key_of(const LogLine& line) {
    return line.alike.empty() ? line.text : line.alike;
}

std::string_view key_of(const FoldedLine& line) {
    return line.alike.empty() ? line.text : line.alike;
}

// Returns true if a launcher's line repeats a rank's, or another launcher's line.
bool is_echo(const FoldedLine& launcher, const LogLine& line) {
    return launcher.kind == LogKind::launcher && key_of(launcher) == key_of(line);
}

bool is_equal(const FoldedLine& known, const LogLine& line) {
    if (is_echo(known, line)) return true;
    if (known.level != line.level || known.kind != line.kind) return false;
    return line.alike.empty()
               ? known.alike.empty() && known.text == line.text && known.code == line.code
               : known.alike == line.alike;
}

void set_bit(std::vector<std::uint64_t>& bits, int rank) {
    const auto word = static_cast<std::size_t>(rank) / 64;
    if (bits.size() <= word) bits.resize(word + 1);
    bits[word] |= std::uint64_t{1} << (rank % 64);
}

void assign(std::string& kept, std::string_view text) {
    if (kept.capacity() > kept_capacity) std::string().swap(kept);
    kept.assign(text);
}

int lowest_rank(const FoldedLine& line) {
    int first = 0;
    for (const std::uint64_t bits : line.rank_bits) {
        if (bits != 0) return first + std::countr_zero(bits);
        first += 64;
    }
    return first;
}

void take_texts(FoldedLine& place, const LogLine& line) {
    assign(place.host, line.host);
    assign(place.text, line.text);
    assign(place.alike, line.alike);
    assign(place.code, line.code);
    assign(place.why, line.why);
    place.failed = line.failed;
}

std::size_t bytes_of_texts(const FoldedLine& line) {
    return line.text.size() + line.why.size() + line.alike.size() + line.rank_bits.size() * 8;
}

}  // namespace

std::string plain_text(std::string_view text) {
    if (!needs_care(text)) return std::string(text);
    std::string kept;
    while (!text.empty()) {
        const std::size_t escape = escape_length(text);
        if (escape == 0) kept += text.front();
        text.remove_prefix(std::max<std::size_t>(escape, 1));
    }
    return printable(kept);
}

LogText::LogText(const LogStyle& style) : style_(style) {
    const std::string all = style.ranks > 1 ? fmt::format("[0-{}]", style.ranks - 1) : "[0]";
    label_width_ = std::max<std::size_t>(all.size(), style.ranks > 1 ? 5 : 3);
}

std::string LogText::ranks_label(const FoldedLine& line) const {
    if (line.kind == LogKind::launcher)
        return style_.names_hosts ? fmt::format("[launcher {}]", plain_text(line.host))
                                  : "[launcher]";
    if (line.is_for_all && style_.ranks > 1) return "[all]";
    const std::vector<int> ranks = line.ranks();
    if (ranks.size() == 1 && style_.names_hosts && !line.host.empty())
        return fmt::format("[{} {}]", ranks.front(), plain_text(line.host));
    std::string label = "[" + fold_ranks(ranks) + "]";
    if (label.size() > longest_label)
        label = fmt::format("[{} of {}: {},...]", ranks.size(), style_.ranks, ranks.front());
    return label;
}

void LogText::append_time(std::string& out, double time_s) {
    const auto millis = static_cast<std::int64_t>(std::floor(time_s * 1000));
    const std::int64_t second = millis / 1000;
    if (second != second_) {
        second_ = second;
        second_text_ = utc_text(static_cast<double>(second)).substr(0, 20);
    }
    const auto rest = static_cast<int>(millis - second * 1000);
    out += second_text_;
    for (const int digit : {rest / 100, rest / 10 % 10, rest % 10})
        out += static_cast<char>('0' + digit);
    out += 'Z';
}

void LogText::append(std::string& out, const FoldedLine& line, std::string_view mark) {
    const bool is_coloured = style_.colours == Colours::on;
    const std::string_view colour = is_coloured ? colour_of(line.level) : std::string_view();
    const std::string label = ranks_label(line);
    out += mark;
    if (is_coloured) out += dim;
    append_time(out, line.time_s);
    out += ' ';
    out += label;
    out.append(label_width_ > label.size() ? label_width_ - label.size() : 0, ' ');
    if (is_coloured) out += usual;
    out += ' ';
    out += colour;
    const std::string_view word =
        line.kind == LogKind::captured ? std::string_view("stderr") : level_name(line.level);
    out += word;
    out.append(word.size() < level_width ? level_width - word.size() + 1 : 1, ' ');
    if (!line.code.empty()) out += plain_text(line.code) + ": ";
    if (needs_care(line.text))
        out += plain_text(line.text);
    else
        out += line.text;
    if (!line.why.empty()) out += "; " + plain_text(line.why);
    if (line.times > 1) out += fmt::format(" ({} times)", line.times);
    if (!colour.empty()) out += usual;
    out += '\n';
}

bool FoldedLine::has(int rank) const {
    const auto word = static_cast<std::size_t>(rank) / 64;
    return word < rank_bits.size() && (rank_bits[word] >> (rank % 64) & 1) != 0;
}

std::vector<int> FoldedLine::ranks() const {
    std::vector<int> found;
    for (std::size_t word = 0; word < rank_bits.size(); ++word)
        for (std::uint64_t bits = rank_bits[word]; bits != 0; bits &= bits - 1)
            found.push_back(static_cast<int>(64 * word) + std::countr_zero(bits));
    return found;
}

std::size_t FoldedLine::count() const {
    std::size_t count = 0;
    for (const std::uint64_t word : rank_bits)
        count += static_cast<std::size_t>(std::popcount(word));
    return count;
}

LogFold::LogFold(const FoldLimits& limits, Emit emit)
    : limits_(limits),
      emit_(std::move(emit)),
      ring_(std::max<std::size_t>(limits.most_lines, 1)),
      slots_(std::bit_ceil(slots_per_line * ring_.size())) {}

// The slot of an equal line that still waits, else one to be taken.
LogFold::Slot* LogFold::slot_for(const LogLine& line, std::uint64_t hash) {
    Slot* free = nullptr;
    for (std::size_t probe = 0; probe < most_probes; ++probe) {
        Slot& slot = slots_[(hash + probe) & (slots_.size() - 1)];
        if (slot.number < first_) {
            if (!free) free = &slot;
        } else if (slot.hash == hash && is_equal(line_of(slot.number), line)) {
            return &slot;
        }
    }
    return free ? free : &slots_[hash & (slots_.size() - 1)];
}

void LogFold::begin(const LogLine& line) {
    if (next_ - first_ == ring_.size()) emit_first();
    FoldedLine& place = line_of(next_++);
    place.time_s = line.time_s;
    place.times = 1;
    place.level = line.level;
    place.kind = line.kind;
    place.is_for_all = line.is_for_all;
    take_texts(place, line);
    std::ranges::fill(place.rank_bits, 0);
    if (line.kind != LogKind::launcher) set_bit(place.rank_bits, line.rank);
    bytes_ += bytes_of_texts(place);
}

// A launcher's line that is known, or what a rank left in its stderr and its launcher has told.
// Lines that were given on lie in the ring for a while.
bool LogFold::is_repeated(const LogLine& line, std::uint64_t hash) {
    const bool is_launchers = line.kind == LogKind::launcher;
    for (std::size_t probe = 0; probe < most_probes; ++probe) {
        const Slot& slot = slots_[(hash + probe) & (slots_.size() - 1)];
        if (slot.number == 0 || slot.hash != hash || slot.number + ring_.size() < next_) continue;
        FoldedLine& known = line_of(slot.number);
        const bool waits = slot.number >= first_;
        if (waits && is_launchers && is_echo(known, line)) return ++known.times > 1;
        const bool is_others = is_launchers != (known.kind == LogKind::launcher);
        const bool is_same = (is_launchers ? std::string_view(known.text) : key_of(known)) ==
                             (is_launchers ? key_of(line) : line.text);
        if (is_others && is_same && (waits || line.time_s - known.time_s < limits_.echo_s))
            return true;
    }
    return false;
}

void LogFold::add(const LogLine& line) {
    pass(line.time_s);
    const std::uint64_t hash = hash64(bytes_of(key_of(line)));
    if (line.kind == LogKind::launcher && is_repeated(line, hash)) return;
    Slot* const slot = slot_for(line, hash);
    const bool is_known =
        slot->number >= first_ && slot->hash == hash && is_equal(line_of(slot->number), line);
    const bool is_launchers = is_known && line_of(slot->number).kind == LogKind::launcher;
    if (is_launchers) line_of(slot->number).times = 0;  // the rank's own word stands for it
    if (is_known && !is_launchers && !line_of(slot->number).has(line.rank)) {
        FoldedLine& known = line_of(slot->number);
        const std::size_t before = bytes_of_texts(known);
        if (line.rank < lowest_rank(known)) take_texts(known, line);
        set_bit(known.rank_bits, line.rank);
        bytes_ += bytes_of_texts(known) - before;
    } else if (is_launchers || line.kind != LogKind::captured || !is_repeated(line, hash)) {
        begin(line);
        *slot = {hash, next_ - 1};
    }
    while (bytes_ > limits_.most_bytes && first_ < next_) emit_first();
}

void LogFold::emit_first() {
    const FoldedLine& line = line_of(first_++);
    bytes_ -= bytes_of_texts(line);
    if (line.times > 0) emit_(line);
}

void LogFold::pass(double time_s) {
    while (first_ < next_ && line_of(first_).time_s < time_s - limits_.window_s) emit_first();
}

void LogFold::finish() {
    while (first_ < next_) emit_first();
}

}  // namespace lockstep
