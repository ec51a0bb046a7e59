// SPDX-License-Identifier: Apache-2.0
// Waiting lines lie in a ring in order of time. A table of hashes leads to the newest of each text;
// a slot whose line has left the ring is free, so that nothing is ever removed from the table.
#include "lockstep/observe/log_fold.hpp"

#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t most_probes = 8;
constexpr std::size_t slots_per_line = 4;
constexpr std::size_t kept_capacity = 4 << 10;  // of a text, for the next in its place

std::string_view key_of(const LogLine& line) {
    return line.alike.empty() ? line.text : line.alike;
}

std::uint64_t hash_of(const LogLine& line) {
    const auto about =
        static_cast<std::uint64_t>(line.level) << 2 | static_cast<std::uint64_t>(line.kind);
    return hash64(bytes_of(key_of(line))) ^ (about * 0x9E3779B97F4A7C15u);
}

bool is_equal(const FoldedLine& known, const LogLine& line) {
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

std::size_t bytes_of_texts(const FoldedLine& line) {
    return line.text.size() + line.why.size() + line.alike.size() + line.rank_bits.size() * 8;
}

}  // namespace

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
    place.level = line.level;
    place.kind = line.kind;
    place.is_for_all = line.is_for_all;
    assign(place.host, line.host);
    assign(place.text, line.text);
    assign(place.alike, line.alike);
    assign(place.code, line.code);
    assign(place.why, line.why);
    place.failed = line.failed;
    std::ranges::fill(place.rank_bits, 0);
    set_bit(place.rank_bits, line.rank);
    bytes_ += bytes_of_texts(place);
}

void LogFold::add(const LogLine& line) {
    pass(line.time_s);
    const std::uint64_t hash = hash_of(line);
    Slot* const slot = slot_for(line, hash);
    const bool joins = slot->number >= first_ && slot->hash == hash &&
                       is_equal(line_of(slot->number), line) &&
                       !line_of(slot->number).has(line.rank);
    if (joins) {
        FoldedLine& known = line_of(slot->number);
        const std::size_t before = bytes_of_texts(known);
        set_bit(known.rank_bits, line.rank);
        bytes_ += bytes_of_texts(known) - before;
    } else {
        begin(line);
        *slot = {hash, next_ - 1};
    }
    while (bytes_ > limits_.most_bytes && first_ < next_) emit_first();
}

void LogFold::emit_first() {
    const FoldedLine& line = line_of(first_++);
    bytes_ -= bytes_of_texts(line);
    emit_(line);
}

void LogFold::pass(double time_s) {
    while (first_ < next_ && line_of(first_).time_s < time_s - limits_.window_s) emit_first();
}

void LogFold::finish() {
    while (first_ < next_) emit_first();
}

}  // namespace lockstep
