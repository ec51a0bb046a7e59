// SPDX-License-Identifier: Apache-2.0
// Converts numbers of foreign files: unchanged, widened, or unpacked.
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"

#include "foreign.hpp"
#include "hdf5/stored_blocks.hpp"
#include "row_layout.hpp"
#include "unpacking_asked.hpp"

#include <fmt/format.h>

namespace lockstep {

NotStreamable not_streamable(const fs::path& path,
                             const std::string& name,
                             const std::string& why,
                             const char* code) {
    return {code, fmt::format("'{}' of '{}' cannot be streamed", name, path.string()), why, ""};
}

// What becomes of elements that no field has as they are; unknown of those that are one's.
Widening ForeignOpening::widening_of(const DatasetFacts& facts, std::size_t field) const {
    if (!facts.number || !facts.number->is_usual || mappings_[field].cf) return Widening{};
    const bool is_whole = facts.number->is_whole;
    const bool is_real_label = mappings_[field].layout == RowLayout::label && !is_whole;
    const bool becomes_label = (becomes_labels_[field] && is_whole) || is_real_label;
    return becomes_label ? label_widening_of(facts) : lockstep::widening_of(facts);
}

ElementType ForeignOpening::type_of(std::size_t number, std::size_t field) const {
    const DatasetFacts& facts = facts_.datasets[field];
    if (is_text(field)) return ElementType::u8;  // until all classes are known
    if (mappings_[field].cf) {
        check_unpacks(facts, mappings_[field], files_[number]);
        return ElementType::f32;
    }
    const Widening widening = widening_of(facts, field);
    if (facts.type && !widening.is_known()) return *facts.type;
    const auto refuse = [&](const char* why) {
        return not_streamable(files_[number],
                              mappings_[field].hdf5_path,
                              fmt::format("it is {}; {}", printable(facts.type_text), why));
    };
    if (facts.is_text)
        throw refuse(
            "text is read as labels only, one for each sample: write PATH:label, or call "
            "the field 'labels'");
    if (!widening.is_known())
        throw refuse("whole numbers of 8 to 64 bits and floating ones of 16, 32 and 64 are read");
    if (!widening.holds_all() && !(may_be_label(mappings_[field]) && facts.has_one_number_a_row()))
        throw refuse("only labels of it are read, because i64 does not hold all its values");
    return widening.type();
}

// Returns the unpacking of the current file; nothing unless it is requested.
std::optional<Unpacking> ForeignOpening::unpacking_of(std::size_t field) const {
    const std::optional<CfValues>& cf = mappings_[field].cf;
    if (!cf) return {};
    return lockstep::unpacking_of(facts_.datasets[field], cf->instead);
}

// Whoever changes an attribute changes the data.
void ForeignOpening::add_unpacking(ByteWriter& identity, std::size_t field) const {
    const std::optional<Unpacking> unpacking = unpacking_of(field);
    if (!unpacking) return;
    const Filter filter = unpacking->as_filter();
    identity.add(filter.element);
    identity.add(hash64(std::as_bytes(std::span(filter.values))));
}

// Once for each field, whichever file has them.
void ForeignOpening::note_unasked(std::size_t field) {
    const std::string warning = unasked_unpacking(facts_.datasets[field], mappings_[field]);
    if (!warning.empty()) unasked_.try_emplace(mappings_[field].name, warning);
}

}  // namespace lockstep
