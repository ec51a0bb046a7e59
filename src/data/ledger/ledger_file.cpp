// SPDX-License-Identifier: Apache-2.0
#include "ledger_file.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace lockstep {
namespace {

// Of a file as much is in memory at a time; a step's record has some bytes for each sample.
constexpr std::uint64_t piece_bytes = 32 << 20;

}  // namespace

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
    std::span<const std::byte> rest;  // of the piece, from `offset` in the file
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

}  // namespace lockstep
