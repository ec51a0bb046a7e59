// SPDX-License-Identifier: Apache-2.0
#include "hdf5_part.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "format/index_columns.hpp"
#include "format/labels.hpp"
#include "hdf5/row_layout.hpp"
#include "hdf5/stored_blocks.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_read_bytes = std::uint64_t{8} << 20;
constexpr std::uint64_t most_read_bytes = std::uint64_t{1} << 30;

NotPacked malformed(const Part& part,
                    const std::string& why,
                    Obstacle obstacle,
                    const char* code = "E214") {
    return {
        obstacle,
        {code, fmt::format("'{}' of '{}' cannot be packed", part.name, part.path.string()), why}};
}

// What the library makes of u64 beyond i64, the largest i64 or a negative one, is no class.
ElementType whole_type(const StoredNumber& number, const Part& part, const std::string& field) {
    const bool has_sign = number.has_sign;
    if (number.bytes == 1 && !has_sign) return ElementType::u8;
    if (number.bytes < 4 || (number.bytes == 4 && has_sign)) return ElementType::i32;
    if (number.bytes < 8 || (number.bytes == 8 && (has_sign || is_label_name(field))))
        return ElementType::i64;
    throw malformed(part,
                    fmt::format("whole numbers of {} bits {} sign do not fit 64 bits with one",
                                8 * number.bytes,
                                has_sign ? "with" : "without"),
                    Obstacle::elements);
}

bool is_text_label(const DatasetFacts& facts, const FieldMapping& field) {
    return is_column_of_texts(facts) && is_label_name(field.name) &&
           field.layout != RowLayout::value;
}

// One class number a sample, which files may have in different types.
bool is_numbered_label(const DatasetFacts& facts, const FieldMapping& field) {
    const bool is_stated = field.layout == RowLayout::label;
    return facts.has_one_number_a_row() && is_label_name(field.name) && facts.number &&
           (facts.number->is_whole || is_stated);
}

// Returns the type to which libhdf5 converts elements without loss.
ElementType element_type(const DatasetFacts& facts, const Part& part, const FieldMapping& field) {
    if (is_text_label(facts, field)) return ElementType::u8;
    if (is_numbered_label(facts, field)) return ElementType::i64;
    if (facts.type) return *facts.type;
    if (facts.number && facts.number->is_whole) return whole_type(*facts.number, part, field.name);
    if (facts.number && facts.number->bytes <= 8)
        return facts.number->bytes <= 4 ? ElementType::f32 : ElementType::f64;
    throw malformed(part,
                    fmt::format("it is {}, neither whole numbers nor floating ones of at most 64 "
                                "bits",
                                printable(facts.type_text)),
                    Obstacle::elements);
}

// Before anything is computed from sizes that a file may have made up.
void check_shape(const Part& part) {
    if (part.size.empty()) throw malformed(part, "it is a single value", Obstacle::samples);
    std::uint64_t bytes = element_bytes(part.type);
    for (std::size_t i = 1; i < part.size.size(); ++i) {
        if (part.size[i] == 0 || part.size[i] > most_read_bytes / bytes)
            throw malformed(part,
                            fmt::format("its sizes are {}: a sample must have 1 byte to {}",
                                        fmt::join(part.size, " x "),
                                        bytes_text(most_read_bytes)),
                            Obstacle::samples);
        bytes *= part.size[i];
    }
    if (part.size[0] == 0 || part.size[0] > (std::uint64_t{1} << 60) / bytes)
        throw malformed(
            part, fmt::format("it has {} samples", grouped(part.size[0])), Obstacle::samples);
}

// The part as a data set of its own that is read as a stream reads it, by the same decoders;
// nullptr if libhdf5 has to.
std::shared_ptr<const DatasetIndex> blocks_of_part(const DatasetFacts& facts,
                                                   const Part& part,
                                                   const FieldMapping& field) {
    if (!facts.file.empty()) return nullptr;
    const Widening widening = part.unpacking                    ? Widening{}
                              : is_numbered_label(facts, field) ? label_widening_of(facts)
                                                                : widening_of(facts);
    const ElementType read_as = widening.is_known() ? widening.type() : part.type;
    const bool is_read = part.unpacking || facts.type || widening.is_known();
    if (!is_read || read_as != part.type) return nullptr;
    BlockForms forms;
    const std::uint64_t bytes = fs::file_size(part.path), samples = part.size[0];
    const std::uint64_t rows = std::max<std::uint64_t>(usual_read_bytes / part.row_bytes(), 1);
    FoundBlocks found =
        lockstep::blocks_of(facts,
                            {.samples = samples,
                             .row_bytes = part.row_bytes(),
                             .file_bytes = bytes,
                             .contiguous_rows = static_cast<std::uint32_t>(std::min(rows, samples)),
                             .widening = widening,
                             .unpacking = part.unpacking},
                            forms);
    if (!found.fault.empty()) return nullptr;
    Manifest manifest{.kind = ManifestKind::foreign,
                      .name = field.name,
                      .row_order = "source",
                      .codec = Codec::filters,
                      .samples = samples,
                      .block_rows = 1};
    manifest.fields = {{.name = field.name,
                        .type = part.type,
                        .layout = layout_text(field.layout),
                        .source = field.hdf5_path}};
    manifest.fields[0].shape.assign(part.size.begin() + 1, part.size.end());
    const fs::path file = fs::absolute(part.path);
    manifest.shards = {{.name = file.filename().string(), .bytes = bytes, .samples = samples}};
    return std::make_shared<const DatasetIndex>(DatasetIndex::of_blocks(file.parent_path(),
                                                                        manifest_text(manifest),
                                                                        {std::move(found.blocks)},
                                                                        std::move(forms),
                                                                        manifest.kind));
}

// Whole rows of chunks, so that each chunk is decoded once.
std::uint64_t rows_at_once(const DatasetFacts& facts, const Part& part) {
    const std::uint64_t samples = part.size[0];
    const std::uint64_t step =
        facts.chunk.empty() ? 1 : std::clamp<std::uint64_t>(facts.chunk[0], 1, samples);
    const std::uint64_t most = std::max<std::uint64_t>(most_read_bytes / part.row_bytes(), 1);
    const std::uint64_t usual = usual_read_bytes / part.row_bytes() / step * step;
    return std::min({std::max(usual, step), most, samples});
}

// Of sizes that a file may have made up: no whole number holds all of these products.
double chunks_of_row(const DatasetFacts& facts) {
    if (facts.chunk.size() != facts.size.size() || facts.chunk.empty()) return 0;
    double chunks = 1 / static_cast<double>(std::max<std::uint64_t>(facts.chunk[0], 1));
    for (std::size_t i = 1; i < facts.chunk.size(); ++i)
        chunks *= std::ceil(static_cast<double>(facts.size[i]) /
                            static_cast<double>(std::max<std::uint64_t>(facts.chunk[i], 1)));
    return chunks;
}

// What libhdf5 expands through filters is whole; the rest it reads where it belongs.
std::uint64_t expanded_chunk(const DatasetFacts& facts) {
    if (facts.filters.empty() || !facts.has_sound_chunks()) return 0;
    std::uint64_t bytes = facts.number ? facts.number->bytes : 1;
    for (const std::uint64_t extent : facts.chunk) {
        if (extent > most_decoded_bytes / bytes) return most_decoded_bytes;
        bytes *= extent;
    }
    return bytes;
}

// The filter that libhdf5 gets from a plug-in only; 0: none.
std::uint64_t plugin_of(const DatasetFacts& facts) {
    constexpr std::uint64_t most_own = 255;
    const auto found = std::ranges::find_if(
        facts.filters, [](const FilterFacts& filter) { return filter.kind > most_own; });
    return found == facts.filters.end() ? 0 : found->kind;
}

// What libhdf5 reads are wider numbers of the same values, which attributes are of.
void read_by_library(const DatasetFacts& facts, const FieldMapping& field, Part& part) {
    if (facts.cf->is_unsigned)
        throw malformed(part,
                        "its attribute _Unsigned is followed only where a stream could read it",
                        Obstacle::elements);
    part.read_as = element_type(facts, part, field);
    const StoredNumber read{.bytes = element_bytes(part.read_as),
                            .is_whole = is_whole(part.read_as),
                            .has_sign = part.read_as != ElementType::u8};
    part.unpacking = Unpacking::of(read, facts.cf->packing, field.cf->instead);
}

std::uint64_t reading_bytes(const Part& part) {
    const std::uint64_t rows = part.rows_at_once * part.row_bytes();
    if (part.blocks) return rows + BlockReader::buffer_bytes(*part.blocks);
    const std::uint64_t read =
        part.rows_at_once * part.row_elements() * element_bytes(part.read_as);
    const std::uint64_t unpacked = part.unpacking ? rows : 0;
    return unpacked + 2 * read + 2 * part.chunk_bytes;  // a chunk as it is stored, too
}

}  // namespace

std::uint64_t Part::row_elements() const {
    return std::accumulate(size.begin() + 1, size.end(), std::uint64_t{1}, std::multiplies<>());
}

std::vector<std::int64_t> sample_shape(const Part& part) {
    return {part.size.begin() + 1, part.size.end()};
}

void check_like(const Part& part, const Part& first) {
    const bool is_like = part.type == first.type && part.is_text == first.is_text &&
                         part.is_encoded == first.is_encoded &&
                         sample_shape(part) == sample_shape(first);
    const auto form_of = [](const Part& each) {
        return fmt::format("{} [{}]",
                           each.is_text ? "text" : element_name(each.type),
                           fmt::join(sample_shape(each), ", "));
    };
    check(is_like, [&] {
        return Error(
            "E208",
            fmt::format(
                "'{}' of '{}' has samples of {}", part.name, part.path.string(), form_of(part)),
            fmt::format("those of '{}' are {}", first.path.string(), form_of(first)),
            "give files of one data set");
    });
}

void check_pack_memory(const Part& part, std::uint64_t allowed) {
    if (part.is_text || part.is_encoded) return;
    const std::uint64_t needed = reading_bytes(part);
    check(needed <= allowed, [&] {
        return Error("E106",
                     fmt::format("reading '{}' of '{}' takes {} at a time; {} are allowed",
                                 part.name,
                                 part.path.string(),
                                 bytes_text(needed),
                                 bytes_text(allowed)),
                     "a chunk is always expanded as a whole",
                     fmt::format("allow more: --memory {}MiB; or rewrite the file with smaller "
                                 "chunks, for example by h5repack",
                                 (needed >> 20) + 1));
    });
}

Part part_of(const DatasetFacts& facts,
             const fs::path& path,
             const FieldMapping& field,
             Links links) {
    Part part{path, field.hdf5_path, field.name, facts.size};
    if (facts.layout == StorageLayout::missing)
        throw malformed(part,
                        fmt::format("HDF5 says: {}", printable(facts.chunks.fault)),
                        Obstacle::library,
                        "E205");
    if (facts.layout == StorageLayout::linked)
        throw malformed(part, "a link leads into another file", Obstacle::elsewhere, "E205");
    if (facts.layout == StorageLayout::elsewhere && links == Links::refused)
        throw malformed(part,
                        "its values lie in other files: it is virtual, or stored in them",
                        Obstacle::elsewhere);
    part.is_encoded = facts.has_bytes && field.name == "images" && facts.size.size() <= 2 &&
                      facts.has_one_number_a_row();
    if (part.is_encoded) {
        check_shape(part);
        return part;
    }
    if (field.cf) {
        check_unpacks(facts, field, path);
        part.unpacking = unpacking_of(facts, field.cf->instead);
        part.type = ElementType::f32;
    } else {
        part.type = element_type(facts, part, field);
    }
    part.read_as = part.type;
    part.is_text = is_text_label(facts, field);
    part.members = facts.members;
    check_shape(part);
    if (part.is_text) return part;
    part.rows_at_once = rows_at_once(facts, part);
    part.chunks_of_row = chunks_of_row(facts);
    part.blocks = blocks_of_part(facts, part, field);
    if (part.unpacking && !part.blocks) read_by_library(facts, field, part);
    part.plugin = plugin_of(facts);
    if (!part.blocks) part.chunk_bytes = expanded_chunk(facts);
    // What libhdf5 makes of 0.5 is a class.
    const bool is_real_label = is_numbered_label(facts, field) && !facts.number->is_whole;
    if (is_real_label && !part.blocks)
        throw malformed(part,
                        "labels that are floating numbers lie in other files, or behind a filter "
                        "that is not known",
                        Obstacle::elements);
    return part;
}

}  // namespace lockstep
