// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/resident.hpp"

#include <string>

#include <fmt/format.h>

namespace lockstep {
namespace {

// What everything else on the node keeps of its memory.
constexpr std::uint64_t usable(std::uint64_t free_bytes) {
    return free_bytes - free_bytes / 10;
}

// Why not, or "" if it does.
std::string why_it_does_not_fit(const MemoryFacts& facts) {
    const std::uint64_t needed_bytes = facts.bytes_needed + facts.loading_bytes;
    const std::string needed =
        fmt::format("keeping all rows in memory takes {} a node, and {} while they are loaded",
                    bytes_text(facts.bytes_needed),
                    bytes_text(facts.loading_bytes));
    if (facts.samples > std::uint64_t{1} << 32)
        return fmt::format("{} samples are too many to keep in memory", grouped(facts.samples));
    if (needed_bytes > facts.budget_bytes)
        return fmt::format("{}; {} are allowed", needed, bytes_text(facts.budget_bytes));
    if (needed_bytes > usable(facts.free_bytes))
        return fmt::format("{}; {} of {} free may be used",
                           needed,
                           bytes_text(usable(facts.free_bytes)),
                           bytes_text(facts.free_bytes));
    if (facts.bytes_needed > facts.shared_bytes)
        return fmt::format(
            "{}; there is room for {} of shared memory", needed, bytes_text(facts.shared_bytes));
    return "";
}

}  // namespace

std::string_view data_mode_name(DataMode mode) {
    return mode == DataMode::resident ? "resident" : "stream";
}

ModeChoice choose_mode(const MemoryFacts& facts) {
    std::string why = why_it_does_not_fit(facts);
    if (!why.empty()) return {DataMode::stream, std::move(why)};
    return {DataMode::resident,
            fmt::format("all rows take {} a node, within the {} allowed and the {} free",
                        bytes_text(facts.bytes_needed),
                        bytes_text(facts.budget_bytes),
                        bytes_text(facts.free_bytes))};
}

void check_resident(const MemoryFacts& facts) {
    const std::string why = why_it_does_not_fit(facts);
    check(why.empty(), [&] {
        return Error("E227",
                     "the data set does not fit in memory",
                     why,
                     "give a larger --data-memory, or stream them: --data-mode auto and, in a new "
                     "run, --order lanes");
    });
}

}  // namespace lockstep
