// SPDX-License-Identifier: Apache-2.0
#include "ledger_record.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "ledgers are little-endian");

constexpr std::string_view magic = "LSLEDGER";
constexpr std::uint32_t version = 1;
constexpr std::size_t digest_digits = 32;
constexpr std::uint64_t most_rows = 1u << 28;

// Fixed-size numbers and texts.
template <class Whole>
void put(std::vector<std::byte>& to, Whole value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
}

template <class Whole>
Whole take(std::span<const std::byte>& from) {
    Whole value{};
    std::memcpy(&value, from.data(), sizeof value);
    from = from.subspan(sizeof value);
    return value;
}

void put_number(std::vector<std::byte>& to, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) to.push_back(static_cast<std::byte>(value | 0x80));
    to.push_back(static_cast<std::byte>(value));
}

// Small for small differences of either sign.
std::uint64_t zigzag(std::uint64_t from, std::uint64_t to) {
    const auto difference = static_cast<std::int64_t>(to - from);
    return static_cast<std::uint64_t>(difference) << 1 ^
           static_cast<std::uint64_t>(difference >> 63);
}

std::uint64_t step_by(std::uint64_t from, std::uint64_t zigzagged) {
    return from + (zigzagged >> 1 ^ (0 - (zigzagged & 1)));
}

// Reads LEB128 until something is wrong; then everything is 0.
class NumberReader {
  public:
    explicit NumberReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    std::uint64_t next() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
            const auto byte = std::to_integer<std::uint64_t>(bytes_.front());
            bytes_ = bytes_.subspan(1);
            if (shift == 63 && byte > 1) break;
            value |= (byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
        bytes_ = {};
        is_sound_ = false;
        return 0;
    }

    std::size_t left() const { return bytes_.size(); }
    bool is_sound() const { return is_sound_; }
    bool is_done() const { return is_sound_ && bytes_.empty(); }

  private:
    std::span<const std::byte> bytes_;
    bool is_sound_ = true;
};

std::size_t count_runs(std::span<const std::uint64_t> ids) {
    std::size_t runs = ids.empty() ? 0 : 1;
    for (std::size_t i = 1; i < ids.size(); ++i) runs += ids[i] != ids[i - 1] + 1;
    return runs;
}

void put_runs(std::vector<std::byte>& to, std::span<const std::uint64_t> ids) {
    std::uint64_t last = 0;
    while (!ids.empty()) {
        std::size_t rows = 1;
        while (rows < ids.size() && ids[rows] == ids[rows - 1] + 1) ++rows;
        put_number(to, zigzag(last, ids.front()));
        put_number(to, rows);
        last = ids[rows - 1];
        ids = ids.subspan(rows);
    }
}

void put_differences(std::vector<std::byte>& to, std::span<const std::uint64_t> ids) {
    std::uint64_t last = 0;
    for (const std::uint64_t id : ids) {
        put_number(to, zigzag(last, id));
        last = id;
    }
}

void take_runs(NumberReader& from, std::uint64_t count, std::vector<std::uint64_t>& ids) {
    std::uint64_t last = 0;
    while (ids.size() < count && from.is_sound()) {
        std::uint64_t id = step_by(last, from.next());
        const std::uint64_t rows = std::min(from.next(), count - ids.size());
        for (std::uint64_t i = 0; i < rows; ++i) ids.push_back(id++);
        last = id - 1;
        if (rows == 0) return;
    }
}

void take_differences(NumberReader& from, std::uint64_t count, std::vector<std::uint64_t>& ids) {
    ids.reserve(std::min<std::uint64_t>(count, from.left()));
    std::uint64_t last = 0;
    while (ids.size() < count && from.is_sound()) ids.push_back(last = step_by(last, from.next()));
}

// Returns true if `body` is a record's; then `found` has its content.
bool decode_body(std::span<const std::byte> body, FoundRecord& found) {
    NumberReader from(body);
    found.step.position.epoch = from.next();
    found.step.position.consumed = from.next();
    found.step.samples = from.next();
    found.step.masked = from.next();
    const std::uint64_t count = from.next(), kind = from.next();
    // A rank has no more rows than the step has, and no step has very many: so a few bytes cannot
    // ask for much memory.
    if (!from.is_sound() || kind > 1 || count > std::min(found.step.samples, most_rows))
        return false;
    if (kind == 1)
        take_runs(from, count, found.ids);
    else
        take_differences(from, count, found.ids);
    return from.is_done() && found.ids.size() == count;
}

std::uint64_t chained(std::uint64_t before, std::span<const std::byte> body) {
    const std::array<std::uint64_t, 2> both{before, hash64(body)};
    return hash64(std::as_bytes(std::span(both)));
}

// Size of the part of a file that is in memory at a time; a step's record has some bytes for each
// sample.
constexpr std::uint64_t piece_bytes = 32 << 20;

// Written at once when so much has come together.
constexpr std::size_t write_bytes = 256u << 10;

std::vector<std::byte> encode_head(const LedgerHead& head) {
    expect(head.data_digest.size() == digest_digits, "a digest has 32 digits");
    std::vector<std::byte> bytes;
    const auto put_text = [&](std::string_view text) {
        const auto raw = bytes_of(text);
        bytes.insert(bytes.end(), raw.begin(), raw.end());
    };
    put_text(magic);
    put(bytes, version);
    put(bytes, static_cast<std::uint32_t>(head.rank));
    put(bytes, static_cast<std::uint32_t>(head.ranks));
    put(bytes, head.dropped);
    put(bytes, head.incarnation);
    put(bytes, head.samples);
    put(bytes, head.start.epoch);
    put(bytes, head.start.consumed);
    put_text(head.data_digest);
    put(bytes, hash64(bytes));
    expect(bytes.size() == ledger_head_bytes, "a ledger's head has a fixed size");
    return bytes;
}

// Nothing for bytes that are not a head.
std::optional<LedgerHead> decode_head(std::span<const std::byte> bytes) {
    constexpr std::size_t hashed = ledger_head_bytes - sizeof(std::uint64_t);
    if (bytes.size() < ledger_head_bytes) return {};
    std::span<const std::byte> rest = bytes.subspan(hashed);
    if (take<std::uint64_t>(rest) != hash64(bytes.first(hashed))) return {};
    if (!std::ranges::equal(bytes.first(magic.size()), bytes_of(magic))) return {};
    rest = bytes.subspan(magic.size());
    if (take<std::uint32_t>(rest) != version) return {};
    LedgerHead head;
    head.rank = take<std::int32_t>(rest);
    head.ranks = take<std::int32_t>(rest);
    head.dropped = take<std::uint32_t>(rest);
    head.incarnation = take<std::uint64_t>(rest);
    head.samples = take<std::uint64_t>(rest);
    head.start.epoch = take<std::uint64_t>(rest);
    head.start.consumed = take<std::uint64_t>(rest);
    head.data_digest.assign(reinterpret_cast<const char*>(rest.data()), digest_digits);
    const bool makes_sense = head.ranks >= 1 && head.rank >= 0 && head.rank < head.ranks &&
                             head.samples > head.dropped && head.start.consumed <= head.samples;
    return makes_sense ? std::optional(head) : std::nullopt;
}

}  // namespace

void append_record(std::vector<std::byte>& to,
                   const StepFacts& step,
                   std::span<const std::uint64_t> ids,
                   std::uint64_t& chain) {
    std::vector<std::byte> body;
    body.reserve(64 + 5 * ids.size());
    const bool in_runs = 2 * count_runs(ids) < ids.size();
    for (const std::uint64_t number : {step.position.epoch,
                                       step.position.consumed,
                                       step.samples,
                                       step.masked,
                                       std::uint64_t{ids.size()},
                                       std::uint64_t{in_runs}})
        put_number(body, number);
    if (in_runs)
        put_runs(body, ids);
    else
        put_differences(body, ids);
    append_body(to, body, chain);
}

void append_body(std::vector<std::byte>& to,
                 std::span<const std::byte> body,
                 std::uint64_t& chain) {
    const auto length = static_cast<std::uint32_t>(body.size());
    put(to, length);
    put(to, ~length);
    to.insert(to.end(), body.begin(), body.end());
    chain = chained(chain, body);
    put(to, chain);
}

FoundRecord read_record(std::span<const std::byte> bytes, std::uint64_t& chain) {
    using enum FoundRecord::State;
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    FoundRecord found;
    if (bytes.size() < frame_bytes || std::ranges::all_of(bytes, is_zero)) return found;
    std::span<const std::byte> rest = bytes;
    const auto length = take<std::uint32_t>(rest), turned = take<std::uint32_t>(rest);
    found.state = damaged;
    if (length != ~turned) return found;
    found.bytes = frame_bytes + length;
    if (bytes.size() < found.bytes) return {torn, found.bytes, {}, {}};
    const std::uint64_t hash = chained(chain, rest.first(length));
    std::span<const std::byte> tail = rest.subspan(length);
    if (take<std::uint64_t>(tail) != hash) {
        // A write that was cut off may leave a last record of the right length with holes in it.
        if (found.bytes == bytes.size()) found.state = torn;
        return found;
    }
    if (!decode_body(rest.first(length), found)) return found;
    chain = hash;
    found.state = whole;
    return found;
}

std::optional<LedgerHead> read_ledger_head(const fs::path& path) {
    const UniqueFd file = open_for_reading(path);
    std::array<std::byte, ledger_head_bytes> bytes{};
    return decode_head(std::span(bytes).first(read_at(file.value(), bytes, 0, path)));
}

LedgerEnd visit_records(const fs::path& path,
                        const std::function<void(const FoundRecord&)>& visit) {
    using enum FoundRecord::State;
    const UniqueFd file = open_for_reading(path);
    std::vector<std::byte> piece(ledger_head_bytes);
    piece.resize(read_at(file.value(), piece, 0, path));
    std::uint64_t size = file_stamp(path).bytes, offset = piece.size(), chain = hash64(piece);
    std::span<const std::byte> rest;  // rest of the piece, from `offset` in the file
    for (bool is_fresh = false;;) {
        const FoundRecord found = rest.empty() ? FoundRecord{} : read_record(rest, chain);
        if (found.state == whole) {
            visit(found);
            offset += found.bytes;
            rest = rest.subspan(found.bytes);
            is_fresh = false;
            continue;
        }
        const bool is_end = offset + rest.size() >= size;
        if (is_end && rest.empty()) return {whole, offset, 0};
        if (is_end) return {found.state, offset, size - offset};
        // A record that is longer than a piece is none; one with nothing but zeros was not written.
        if (is_fresh) return {found.bytes > 0 ? damaged : found.state, offset, size - offset};
        piece.resize(std::min(piece_bytes, size - offset));
        const std::size_t wanted = piece.size();
        piece.resize(read_at(file.value(), piece, offset, path));
        if (piece.size() < wanted) size = offset + piece.size();
        rest = piece;
        is_fresh = true;
    }
}

fs::path ledger_path(const fs::path& folder, const LedgerHead& head) {
    return folder / fmt::format("rank-{:05}.{}.ledger", head.rank, head.incarnation);
}

LedgerWriter::LedgerWriter(const fs::path& folder, const LedgerHead& head)
    : path_(ledger_path(folder, head)) {
    make_own_folder(folder);
    file_ = open_for_writing(path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
    if (!file_) throw system_error("create", path_.string(), errno);
    pending_ = encode_head(head);
    chain_ = hash64(pending_);
    flush();
    sync_path(folder);
}

void LedgerWriter::add(const Batch& batch) {
    const auto masked = std::ranges::count(batch.valid, std::uint8_t{0});
    append_record(pending_,
                  {batch.position,
                   static_cast<std::uint64_t>(batch.samples_in_step),
                   static_cast<std::uint64_t>(masked)},
                  batch.sample_ids,
                  chain_);
    if (pending_.size() >= write_bytes) write();
}

void LedgerWriter::write() {
    write_all(file_.value(), pending_, path_);
    pending_.clear();
}

void LedgerWriter::flush() {
    write();
    sync();
}

void LedgerWriter::sync() const {
    if (::fdatasync(file_.value()) != 0) throw system_error("write", path_.string(), errno);
}

}  // namespace lockstep
