// SPDX-License-Identifier: Apache-2.0
#include "unpacking_asked.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/shell_word.hpp"

#include "hdf5/stored_blocks.hpp"
#include "row_layout.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

// xarray gives every float a _FillValue of NaN, which changes nothing on reading.
bool changes_nothing(const DatasetFacts& facts) {
    const CfPacking& packing = facts.cf->packing;
    const auto is_nan = [](std::uint64_t bits) { return std::isnan(std::bit_cast<double>(bits)); };
    return !packing.scale && !packing.offset && !packing.least && !packing.most &&
           !facts.number->is_whole && std::ranges::all_of(packing.missing, is_nan);
}

std::string with_cf(FieldMapping field) {
    field.cf.emplace();
    return shell_word(mapping_text(field));
}

}  // namespace

void check_unpacks(const DatasetFacts& facts,
                   const FieldMapping& field,
                   const std::filesystem::path& file) {
    const std::string fault = unpacking_fault(facts);
    FieldMapping without = field;
    without.cf.reset();
    check(fault.empty(), [&] {
        return Error("E235",
                     fmt::format("'{}' of '{}' cannot be unpacked", field.hdf5_path, file.string()),
                     fault,
                     fmt::format("to read the stored numbers: --field {}",
                                 shell_word(mapping_text(without))));
    });
}

std::string unasked_unpacking(const DatasetFacts& facts, const FieldMapping& field) {
    if (field.cf || may_be_label(field) || !unpacking_fault(facts).empty() ||
        changes_nothing(facts))
        return "";
    return fmt::format(
        "'{}' has {}, which are not followed: its numbers are taken as they are stored; for what "
        "they stand for by the CF conventions write --field {}",
        printable(field.hdf5_path),
        facts.cf->packing.text(),
        with_cf(field));
}

}  // namespace lockstep
