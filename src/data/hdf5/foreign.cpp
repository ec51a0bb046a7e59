// SPDX-License-Identifier: Apache-2.0
#include "foreign.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"

#include "format/labels.hpp"
#include "format/manifest_fields.hpp"
#include "row_layout.hpp"
#include "shard_probe.hpp"
#include "stored_blocks.hpp"
#include "stream/read_plan.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t block_bytes = 512 * 1024, smallest_block_bytes = 64 * 1024;

// A window holds whole bands of chunks that cut samples, so that each is expanded once, up to here.
constexpr std::uint64_t most_band_bytes = std::uint64_t{64} << 20;

// So many rows of a band of `rows` that they divide it, if that is not far from as many as fit.
std::uint64_t part_of_band(std::uint64_t rows, std::uint64_t row_bytes) {
    const std::uint64_t least = (rows * row_bytes - 1) / most_band_bytes + 1;
    for (std::uint64_t parts = least; parts < 2 * least && parts <= rows; ++parts)
        if (rows % parts == 0) return rows / parts;
    return std::max<std::uint64_t>(rows / least, 1);
}

// Libraries of tables and images write one number for each sample as [n, 1] or [n, 1, 1, 1].
bool is_label_column(const FieldMapping& mapping, const RowForm& rows) {
    const bool is_named = mapping.name == "labels" || mapping.layout == RowLayout::label;
    return is_named && may_be_label(mapping) && mapping.name != "tokens" && is_whole(rows.type) &&
           std::ranges::count(rows.shape, 1) == std::ssize(rows.shape);
}

}  // namespace

ForeignOpening::ForeignOpening(const std::vector<fs::path>& files,
                               const std::vector<FieldMapping>& mappings)
    : mappings_(mappings), becomes_labels_(mappings.size()), named_(mappings.size()) {
    check_fields(mappings);
    check(!files.empty(), [] { return Error("E201", "no HDF5 files are named"); });
    files_ = canonical(files);
    folder_ = common_folder(files_);
    warned_of_ = files_.size();
    for (const FieldMapping& mapping : mappings) {
        request_.datasets.push_back(mapping.hdf5_path);
        if (mapping.links == Links::followed) request_.links = Links::followed;
    }
}

DatasetIndex ForeignOpening::run(Telling telling) {
    try {
        while (!add_files()) {
        }
        DatasetIndex index = made_index();
        if (telling == Telling::warnings) warn(index);
        return index;
    } catch (const NotStreamable& error) {
        throw Error(error.code(), error.what(), error.why(), way_out(error));
    }
}

void ForeignOpening::be_part_of(const AskedFiles& whole,
                                std::uint32_t block_rows,
                                std::size_t warned_of) {
    whole_ = &whole;
    warned_of_ = warned_of;
    block_rows_ = block_rows;
}

AskedFiles ForeignOpening::asked_files() const {
    return {.files = files_, .fields = mappings_, .links = request_.links};
}

// Only what was tried is said to work: the first row of each field, as packing would read it.
std::string ForeignOpening::way_out(const NotStreamable& reason) const {
    AskedFiles asked = asked_files();
    for (FieldMapping& field : asked.fields) field.file.clear();  // these files are its own
    try {
        check_packs_hdf5(looked_at_, asked);
    } catch (const Error& error) {
        if (error.why() == reason.why()) return error.fix();
        return fmt::format("it cannot be packed either ({}); {}",
                           error.why().empty() ? error.what() : error.why(),
                           error.fix());
    }
    return "make shards of it: " + pack_command(whole_ ? *whole_ : asked);
}

Candidate ForeignOpening::look() {
    ask(0);
    facts_ = sandbox_.answer();
    look_again_behind_links();
    Candidate found{mappings_[0].hdf5_path, facts_.datasets[0], "", nullptr};
    if (is_absent(found.facts)) {  // what is said of these lists candidates, too
        found.obstacle = "it was listed, but is not there";
        return found;
    }
    try {
        add_file(0);
        choose_block_rows();
        add_blocks(0);
        found.rows = std::make_shared<const DatasetIndex>(made_index());
    } catch (const Error& error) {
        found.obstacle = error.why().empty() ? error.what() : error.why();
    }
    return found;
}

// False where it must begin again.
bool ForeignOpening::add_files() {
    manifest_ = {};
    first_rows_.clear();
    named_.assign(mappings_.size(), {});
    stored_.clear();
    forms_ = {};
    stamps_.clear();
    asked_.clear();
    linked_.clear();
    known_.clear();
    own_shard_.clear();
    unasked_.clear();
    ask(0);
    for (std::size_t number = 0; number < files_.size(); ++number) {
        facts_ = sandbox_.answer();
        look_again_behind_links();
        settle_columns(facts_.datasets, mappings_, whole_ && files_.size() == 1);
        const bool is_last = number + 1 == files_.size();
        if (!is_last) ask(number + 1);  // and looks at it meanwhile
        if (!add_file(number)) {
            if (!is_last) sandbox_.answer();
            return false;
        }
        if (number == 0) choose_block_rows();
        add_blocks(number);
    }
    return true;
}

DatasetIndex ForeignOpening::made_index() {
    describe_origin();
    DatasetIndex index;
    index.path_ = common_folder({known_.begin(), known_.end()});
    index.stored_ = std::move(stored_);
    index.forms_ = std::move(forms_);
    index.stamps_ = std::move(stamps_);
    describe(index);
    read_labels(index);
    describe(index);
    index.check_blocks();
    return index;
}

// Returns true if the file that is being added has the same labels in another type.
bool ForeignOpening::may_become_labels(std::size_t field) const {
    const RowForm &rows = rows_[field], &first = first_rows_[field];
    return rows.type != first.type && may_be_label(mappings_[field]) && !becomes_labels_[field] &&
           is_whole(rows.type) && is_whole(first.type) && first.shape.empty() &&
           facts_.datasets[field].has_one_number_a_row();
}

void ForeignOpening::ask(std::size_t number) {
    asked_.push_back(file_stamp(files_[number]));
    check_is_whole_hdf5(files_[number], 0);
    request_.path = files_[number];
    sandbox_.ask(request_);
}

RowForm ForeignOpening::rows_in(std::size_t number, std::size_t field) const {
    const FieldMapping& mapping = mappings_[field];
    const DatasetFacts& facts = facts_.datasets[field];
    if (is_absent(facts)) throw no_such_dataset(files_[number], asked_files(), field);
    const bool is_class =
        facts.number &&
        (facts.number->is_whole ? becomes_labels_[field] : mapping.layout == RowLayout::label);
    try {
        RowForm rows = form_of(facts, mapping, files_[number], Road::stream, is_class);
        if (is_label_column(mapping, rows)) rows.shape.clear();
        return rows;
    } catch (const Unfit& found) {
        throw refused(number, field, found.why, found.code.empty() ? "E234" : found.code);
    }
}

// The file as a shard, and its fields, which are those of the first.
// False where labels must become i64, in all files.
bool ForeignOpening::add_file(std::size_t number) {
    const fs::path& path = files_[number];
    const AskedFiles asked = asked_files();
    looked_at_ = path;
    rows_.clear();
    for (std::size_t f = 0; f < mappings_.size(); ++f) {
        const FieldMapping& mapping = mappings_[f];
        const DatasetFacts &facts = facts_.datasets[f], &before = facts_.datasets[0];
        const RowForm& rows = rows_.emplace_back(rows_in(number, f));
        if (number == 0) {
            check_dimensions(asked, f, path, facts.size[0], rows.shape);
            first_rows_.push_back(rows);
            manifest_.fields.push_back({.name = mapping.name,
                                        .type = rows.type,
                                        .shape = rows.shape,
                                        .layout = layout_text(mapping.layout),
                                        .source = mapping.hdf5_path});
            check_is_settled(mapping, manifest_.fields[f], path);
        }
        check(facts.size[0] == before.size[0],
              [&] { return other_rows(path, asked, 0, before.size, f, facts.size); });
        named_[f].add(facts, mapping, path);
        const std::string warning = unasked_unpacking(facts, mapping);
        if (!warning.empty()) unasked_.try_emplace(mapping.name, warning);
        if (may_become_labels(f)) {
            becomes_labels_[f] = true;
            return false;
        }
        check_like(rows, first_rows_[f], asked, f, path, files_[0]);
    }
    add_shards(number);
    manifest_.samples += facts_.datasets[0].size[0];
    check(manifest_.samples <= most_samples,
          [&] { return refused(number, 0, "there are too many samples"); });
    return true;
}

// Those of the chunks of the field with the largest samples: what is shuffled as one should be read
// as one. Many small chunks are taken together.
void ForeignOpening::choose_block_rows() {
    std::size_t largest = 0;
    for (std::size_t f = 0; f < manifest_.fields.size(); ++f)
        if (!is_made(f) &&
            manifest_.fields[f].bytes_per_sample() > manifest_.fields[largest].bytes_per_sample())
            largest = f;
    const std::uint64_t row_bytes = manifest_.fields[largest].bytes_per_sample();
    const DatasetFacts& facts = facts_.datasets[largest].stored()[0];
    std::uint64_t rows = std::max<std::uint64_t>(1, block_bytes / row_bytes);
    if (facts.layout == StorageLayout::chunked) {
        const std::uint64_t chunk = facts.chunk[0];
        const bool is_small = chunk * row_bytes < smallest_block_bytes;
        if (is_small)
            rows = std::max(chunk, rows / chunk * chunk);
        else
            rows = facts.has_whole_rows() ? chunk : part_of_band(chunk, row_bytes);
    }
    if (block_rows_ > 0) rows = block_rows_;
    manifest_.block_rows =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rows, 1, 0x7fffffff));
}

void ForeignOpening::add_blocks(std::size_t number) {
    Shard& shard = manifest_.shards[own_shard_[number]];
    stored_.resize(mappings_.size());
    ByteWriter identity = identity_of(files_[number], shard.bytes);
    for (std::size_t f = 0; f < mappings_.size(); ++f)
        if (!rows_[f].is_text) add_blocks_of(number, f, identity);
    shard.xxh3_128 = hash128(std::span<const std::byte>(identity.finish())).hex();
}

void ForeignOpening::add_blocks_of(std::size_t number, std::size_t field, ByteWriter& identity) {
    std::uint64_t first = shard_of(number).first_sample;
    const auto parts = facts_.datasets[field].stored();
    const RowForm& rows = rows_[field];
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const DatasetFacts& part = parts[p];
        const std::uint32_t shard = part_shards_[field][p];
        FoundBlocks found = blocks_of(part,
                                      {.first_sample = first,
                                       .samples = part.size[0],
                                       .row_bytes = manifest_.fields[field].bytes_per_sample(),
                                       .file_bytes = manifest_.shards[shard].bytes,
                                       .shard = shard,
                                       .contiguous_rows = manifest_.block_rows,
                                       .widening = rows.widening,
                                       .unpacking = rows.unpacking},
                                      forms_);
        if (!found.fault.empty())
            throw refused(number, field, found.fault, found.lacks_filter ? "E212" : "E234");
        identity.add(part.offset);
        for (const auto* column : {&part.chunks.offsets, &part.chunks.bytes})
            identity.add(hash64(std::as_bytes(std::span(*column))));
        auto& blocks = stored_[field];
        blocks.insert(blocks.end(), found.blocks.begin(), found.blocks.end());
        first += part.size[0];
    }
    if (!rows.unpacking) return;
    // Whoever changes an attribute changes the data.
    const Filter filter = rows.unpacking->as_filter();
    identity.add(filter.element);
    identity.add(hash64(std::as_bytes(std::span(filter.values))));
}

void ForeignOpening::describe_origin() {
    manifest_.kind = ManifestKind::foreign;
    const fs::path above = common_folder({known_.begin(), known_.end()});
    for (Shard& shard : manifest_.shards)
        shard.name = fs::path(shard.name).lexically_relative(above).string();
    manifest_.name = files_.size() == 1 ? files_[0].stem().string() : folder_.filename().string();
    manifest_.writer = version_text();
    manifest_.row_order = "source";
    manifest_.codec = Codec::filters;
    manifest_.uuid = uuid_from(hash128(std::string_view(manifest_text(manifest_))).hex());
}

void ForeignOpening::describe(DatasetIndex& index) const {
    index.manifest_text_ = manifest_text(manifest_);
    index.manifest_ =
        parse_manifest(index.manifest_text_, "foreign HDF5 files", ManifestKind::foreign);
}

void ForeignOpening::warn(DatasetIndex& index) const {
    if (warned_of_ > 0)
        index.warnings_.push_back(
            fmt::format("{} HDF5 file(s) that others wrote are streamed. They have no hashes, so "
                        "that damage goes unnoticed unless the files have checksums. Their rows "
                        "are not shuffled: sorted rows mix only within windows. They have no mean "
                        "and deviation, and only size, time and layout show changes; 'lockstep "
                        "data pack --hdf5' makes shards of them",
                        grouped(warned_of_)));
    for (const auto& [file, stamp] : linked_)
        once(Level::info, "links lead to '{}', which is also read", file.string());
    for (const auto& [option, warning] : unasked_) index.warnings_.push_back(warning);
    for (const std::string& warning : index.warnings_) once(Level::warn, "{}", warning);
    for (const std::string& cost : cut_costs(index)) once(Level::info, "{}", cost);
    suggest_one_hot();
}

}  // namespace lockstep
