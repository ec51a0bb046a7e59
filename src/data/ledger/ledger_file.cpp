// SPDX-License-Identifier: Apache-2.0
#include "ledger_file.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"

#include <array>
#include <span>

namespace lockstep {
namespace {

// Ten thousand epochs of a million samples on one rank.
constexpr std::size_t most_bytes = std::size_t{1} << 35;

}  // namespace

std::optional<LedgerHead> read_ledger_head(const fs::path& path) {
    const UniqueFd file = open_for_reading(path);
    std::array<std::byte, ledger_head_bytes> bytes{};
    return decode_head(std::span(bytes).first(read_at(file.value(), bytes, 0, path)));
}

LedgerEnd visit_records(const fs::path& path,
                        const std::function<void(const FoundRecord&)>& visit) {
    const std::string content = read_file(path, most_bytes);
    const std::span<const std::byte> bytes = bytes_of(content);
    std::uint64_t chain = hash64(bytes.first(ledger_head_bytes));
    std::size_t at = ledger_head_bytes;
    while (at < bytes.size()) {
        const FoundRecord found = read_record(bytes.subspan(at), chain);
        if (found.state != FoundRecord::State::whole) return {found.state, at, bytes.size() - at};
        visit(found);
        at += found.bytes;
    }
    return {FoundRecord::State::whole, at, 0};
}

}  // namespace lockstep
