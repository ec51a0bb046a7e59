// SPDX-License-Identifier: Apache-2.0
#include "hdf5_part.hpp"

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
constexpr std::uint64_t most_read_bytes = std::uint64_t{1} << 30;  // of a row, too, by form_of()

// One class number a sample, which files may have in different types.
bool is_numbered_label(const DatasetFacts& facts, const FieldMapping& field) {
    const bool is_stated = field.layout == RowLayout::label;
    return facts.has_one_number_a_row() && is_label_name(field.name) && facts.number &&
           (facts.number->is_whole || is_stated);
}

// The part as a data set of its own that is read as a stream reads it, by the same decoders;
// nullptr if libhdf5 has to.
std::shared_ptr<const DatasetIndex> blocks_of_part(const DatasetFacts& facts,
                                                   const Part& part,
                                                   const FieldMapping& field) {
    if (!facts.file.empty()) return nullptr;
    const RowForm& form = part.form;
    if (!form.unpacking && !form.widening.is_known() && facts.type != form.type) return nullptr;
    BlockForms forms;
    const std::uint64_t bytes = fs::file_size(part.path), samples = part.size[0];
    const std::uint64_t rows = std::max<std::uint64_t>(usual_read_bytes / part.row_bytes(), 1);
    FoundBlocks found =
        lockstep::blocks_of(facts,
                            {.samples = samples,
                             .row_bytes = part.row_bytes(),
                             .file_bytes = bytes,
                             .contiguous_rows = static_cast<std::uint32_t>(std::min(rows, samples)),
                             .widening = form.widening,
                             .unpacking = form.unpacking},
                            forms);
    if (!found.fault.empty()) return nullptr;
    Manifest manifest{.kind = ManifestKind::foreign,
                      .name = field.name,
                      .row_order = "source",
                      .codec = Codec::filters,
                      .samples = samples,
                      .block_rows = 1};
    manifest.fields = {{.name = field.name,
                        .type = form.type,
                        .shape = form.shape,
                        .layout = layout_text(field.layout),
                        .source = field.hdf5_path}};
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
void unpack_what_library_reads(const DatasetFacts& facts, FieldMapping field, Part& part) {
    if (facts.cf->is_unsigned)
        throw Unfit{Obstacle::elements,
                    "its attribute _Unsigned is followed only where a stream could read it"};
    const std::optional<double> instead = field.cf->instead;
    field.cf.reset();
    part.read_as = form_of(facts, field, part.path, Road::pack, false).type;
    const StoredNumber read{.bytes = element_bytes(part.read_as),
                            .is_whole = is_whole(part.read_as),
                            .has_sign = part.read_as != ElementType::u8};
    part.form.unpacking = Unpacking::of(read, facts.cf->packing, instead);
}

std::uint64_t reading_bytes(const Part& part) {
    const std::uint64_t rows = part.rows_at_once * part.row_bytes();
    if (part.blocks) return rows + BlockReader::buffer_bytes(*part.blocks);
    const std::uint64_t read =
        part.rows_at_once * part.row_elements() * element_bytes(part.read_as);
    const std::uint64_t unpacked = part.form.unpacking ? rows : 0;
    return unpacked + 2 * read + 2 * part.chunk_bytes;  // a chunk as it is stored, too
}

}  // namespace

std::uint64_t Part::row_elements() const {
    return std::accumulate(size.begin() + 1, size.end(), std::uint64_t{1}, std::multiplies<>());
}

void check_pack_memory(const Part& part, std::uint64_t allowed) {
    if (part.form.is_text || part.form.is_encoded) return;
    const std::uint64_t needed = reading_bytes(part);
    check(needed <= allowed,
          "E106",
          fmt::format("reading '{}' of '{}' takes {} at a time; {} are allowed",
                      part.name,
                      part.path.string(),
                      bytes_text(needed),
                      bytes_text(allowed)),
          "a chunk is always expanded as a whole",
          fmt::format("allow more: --memory {}MiB; or rewrite the file with smaller "
                      "chunks, for example by h5repack",
                      (needed >> 20) + 1));
}

Part part_of(const DatasetFacts& facts,
             const fs::path& path,
             const FieldMapping& field,
             Links links) {
    if (facts.layout == StorageLayout::elsewhere && links == Links::refused)
        throw Unfit{Obstacle::elsewhere, lies_elsewhere};
    const bool is_class = is_numbered_label(facts, field);
    Part part{path,
              field.hdf5_path,
              field.name,
              facts.size,
              form_of(facts, field, path, Road::pack, is_class)};
    if (part.form.is_text || part.form.is_encoded) return part;
    part.read_as = part.form.type;
    part.rows_at_once = rows_at_once(facts, part);
    part.chunks_of_row = chunks_of_row(facts);
    part.blocks = blocks_of_part(facts, part, field);
    part.plugin = plugin_of(facts);
    if (part.blocks) return part;
    part.chunk_bytes = expanded_chunk(facts);
    if (part.form.unpacking) unpack_what_library_reads(facts, field, part);
    // What libhdf5 makes of 0.5 is a class.
    if (is_class && !facts.number->is_whole)
        throw Unfit{Obstacle::elements,
                    "labels that are floating numbers lie in other files, or behind a filter that "
                    "is not known"};
    return part;
}

}  // namespace lockstep
