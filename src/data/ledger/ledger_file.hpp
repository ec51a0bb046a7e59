// SPDX-License-Identifier: Apache-2.0
// One rank's ledger file, read back.
#pragma once

#include "lockstep/data/ledger.hpp"

#include "ledger_record.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

/// How a file's bytes ended.
struct LedgerEnd {
    FoundRecord::State state = FoundRecord::State::whole;
    std::uint64_t offset = 0;  ///< of what is torn or damaged
    std::uint64_t bytes = 0;   ///< from there to the end of the file
};

/// The head of the file at `path`; nothing if it has none. Errors: E201, E202, E402.
std::optional<LedgerHead> read_ledger_head(const std::filesystem::path& path);

/// Calls `visit` with every whole record, up to the first that is not. The file has a head.
/// However large it is, a piece of it is in memory. Errors: E201, E202, E206, E402.
LedgerEnd visit_records(const std::filesystem::path& path,
                        const std::function<void(const FoundRecord&)>& visit);

}  // namespace lockstep
