// SPDX-License-Identifier: Apache-2.0
// A data set that a link leads to lies in a file that nobody named, and so do the parts of a
// virtual one. Such a file becomes a shard without samples of its own, in front of the file that
// names it, so that its blocks are read, watched and told of like those of any other:
//
//     a.h5   /x -> data-a.h5:/x   /y         shards   data-a.h5 (0)  a.h5 (60)  data-b.h5 (0)  b.h5
//     (60) b.h5   /x -> data-b.h5:/x   /y         of /x    ^                         ^
//                                            of /y                   ^                         ^
//
// What must never happen: a file is opened that the user does not trust. So links are followed only
// where `Links` says so.

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"

#include "foreign.hpp"
#include "format/labels.hpp"
#include "row_layout.hpp"
#include "stored_blocks.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace lockstep {

namespace {

// Its remedy is found later.
NotStreamable not_streamable(const fs::path& path,
                             const std::string& name,
                             const std::string& why,
                             const std::string& code) {
    return {code, fmt::format("'{}' of '{}' cannot be streamed", name, path.string()), why, ""};
}

}  // namespace

NotStreamable ForeignOpening::refused(std::size_t number,
                                      std::size_t field,
                                      const std::string& why,
                                      const std::string& code) const {
    return not_streamable(files_[number], mappings_[field].hdf5_path, why, code);
}

ByteWriter identity_of(const fs::path& file, std::uint64_t bytes) {
    ByteWriter identity;
    identity.add(bytes);
    const auto time = fs::last_write_time(file).time_since_epoch();
    identity.add(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()));
    return identity;
}

// What was seen of a linked file is of the time that its stamp says: it is only known by having
// looked once.
void ForeignOpening::look_again_behind_links() {
    bool has_new = false;
    for (const DatasetFacts& facts : facts_.datasets)
        for (const DatasetFacts& part : facts.stored()) {
            if (part.file.empty()) continue;
            const fs::path file = fs::canonical(part.file);
            if (linked_.try_emplace(file, file_stamp(file)).second) has_new = true;
        }
    if (has_new) facts_ = sandbox_.look(request_);
}

void ForeignOpening::add_shard(const fs::path& file,
                               std::uint64_t samples,
                               const FileStamp& stamp) {
    const bool is_new = known_.insert(file).second;
    if (!is_new)
        throw not_streamable(
            file, mappings_[0].hdf5_path, "several of the files link to it, or it is one", "E205");
    manifest_.shards.push_back({.name = file.string(),
                                .bytes = fs::file_size(file),
                                .samples = samples,
                                .first_sample = manifest_.samples});
    stamps_.push_back(stamp);
}

// Of `file`, which a link of the file leads to whose linked shards begin at `first`.
std::uint32_t ForeignOpening::linked_shard(const fs::path& file, std::size_t first) {
    for (std::size_t shard = first; shard < manifest_.shards.size(); ++shard)
        if (manifest_.shards[shard].name == file.string()) return static_cast<std::uint32_t>(shard);
    const auto stamp = linked_.find(file);
    if (stamp == linked_.end())
        throw not_streamable(file,
                             mappings_[0].hdf5_path,
                             "what leads to it changed while it was looked at",
                             "E205");
    add_shard(file, 0, stamp->second);
    Shard& shard = manifest_.shards.back();
    shard.xxh3_128 =
        hash128(std::span<const std::byte>(identity_of(file, shard.bytes).finish())).hex();
    return static_cast<std::uint32_t>(manifest_.shards.size() - 1);
}

// The file, and before it those that its links lead to.
void ForeignOpening::add_shards(std::size_t number) {
    const std::size_t first = manifest_.shards.size();
    const auto& datasets = facts_.datasets;
    std::map<std::string, std::uint32_t> shards;
    for (const DatasetFacts& facts : datasets)
        for (const DatasetFacts& part : facts.stored())
            if (!part.file.empty())
                shards[part.file] = linked_shard(fs::canonical(part.file), first);
    const auto own = static_cast<std::uint32_t>(manifest_.shards.size());
    add_shard(files_[number], datasets[0].size[0], asked_[number]);
    own_shard_.push_back(own);
    shards[""] = own;
    part_shards_.assign(mappings_.size(), {});
    for (std::size_t f = 0; f < mappings_.size(); ++f)
        for (const DatasetFacts& part : datasets[f].stored())
            part_shards_[f].push_back(shards[part.file]);
}

// Labels of files that others wrote, read once when they are opened: numbers are counted, texts and
// one-hot rows become numbers, which the index keeps.

namespace {

constexpr std::uint64_t hot_bytes_at_once = std::uint64_t{8} << 20;

// The samples of each class: 0 to the largest label. Reads the whole field once.
std::vector<std::uint64_t> counted_classes(const DatasetIndex& index, std::size_t field) {
    ShardFiles files(std::shared_ptr<const DatasetIndex>(std::shared_ptr<void>(), &index));
    BlockReader reader(files, field);
    std::vector<std::uint64_t> counts;
    const Field& described = index.fields()[field];
    const auto& blocks = index.stored_blocks(field);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const std::span<const std::byte> rows = reader.read_block(field, b);
        const std::optional<BadLabel> bad = first_label_beyond(described, rows, max_classes);
        check(!bad, [&] {
            const bool is_whole_number = bad->label != Widening::no_class;
            return Error(
                "E210",
                fmt::format(
                    "{} of sample {} in '{}' is {}",
                    is_whole_number ? label_text(described, bad->label) : "label",
                    grouped(blocks[b].first_row + bad->element * element_bytes(described.type) /
                                                      index.row_bytes_of(field, blocks[b])),
                    index.shards()[blocks[b].shard].name,
                    is_whole_number ? "out of range" : "no whole number"),
                "a label is a class number: 0 and up",
                (described.shape.empty()
                     ? "to predict these numbers: " + way_to_rename(index, field, "targets") + "; "
                     : "") +
                    "to number the values that occur from 0, in sorted order, " +
                    way_to_rewrite(
                        index, field, "n.unique(x,return_inverse=True)[1].reshape(x.shape)"));
        });
        count_labels(described, rows, counts);
    }
    return counts;
}

}  // namespace

bool ForeignOpening::is_label(std::size_t field) const {
    const FieldMapping& mapping = mappings_[field];
    const Field& made = manifest_.fields[field];
    const bool is_possible = is_of_classes(made) || (made.shape.empty() && is_whole(made.type));
    check(is_possible || mapping.layout != RowLayout::label, [&] {
        const std::string place = mapping.hdf5_path;
        return Error(
            "E235",
            fmt::format("field '{}' is no label: samples of '{}' are {} [{}]",
                        mapping.name,
                        place,
                        element_name(made.type),
                        fmt::join(made.shape, ", ")),
            "a label is one whole number or text per sample; of 'masks' [H, W] one number per "
            "pixel, of 'tokens' [T] per place",
            made.shape.size() == 1
                ? fmt::format(
                      "if each row has one 1 and else 0: --field {0}={1}:onehot; if several "
                      "may be 1: --field {0}={1}",
                      mapping.name,
                      place)
            : made.shape.size() == 2
                ? fmt::format("if each pixel has a class: --field masks={}:label", place)
                : fmt::format(
                      "to predict these numbers, give --field targets={} of a folder NAME: {}",
                      place,
                      rewrite_command(asked_files(), field, "x.reshape(len(x), -1)")));
    });
    return may_be_label(mapping) && is_possible;
}

// Whether class numbers are made of what files have.
bool ForeignOpening::is_made(std::size_t field) const {
    return first_rows_[field].is_text || mappings_[field].layout == RowLayout::one_hot;
}

RowsRequest ForeignOpening::rows_of(std::size_t number, std::size_t field) const {
    return {.path = files_[number],
            .dataset = mappings_[field].hdf5_path,
            .rows = shard_of(number).samples,
            .links = mappings_[field].links};
}

LabelColumn ForeignOpening::hot_rows_of(const DatasetIndex& index, std::size_t field) const {
    const Field& stored = index.fields()[field];
    LabelColumn column{
        .counts = std::vector<std::uint64_t>(static_cast<std::size_t>(stored.shape.at(0)))};
    ShardFiles files(std::shared_ptr<const DatasetIndex>(std::shared_ptr<void>(), &index));
    BlockReader reader(files, field);
    const std::uint64_t row_bytes = stored.bytes_per_sample();
    const std::uint64_t most = std::max<std::uint64_t>(hot_bytes_at_once / row_bytes, 1);
    std::vector<std::byte> rows;
    for (std::size_t number = 0; number < files_.size(); ++number) {
        const Shard& shard = shard_of(number);
        for (std::uint64_t first = 0; first < shard.samples; first += most) {
            const std::uint64_t count = std::min(most, shard.samples - first);
            rows.resize(count * row_bytes);
            reader.read_rows(field, shard.first_sample + first, count, rows);
            add_hot_rows(column, stored.type, rows, rows_of(number, field), first);
        }
    }
    return column;
}

// In blocks like those of files, so that a window reads no more than its own.
void ForeignOpening::keep(DatasetIndex& index, std::size_t field, const LabelColumn& column) {
    Field& made = manifest_.fields[field];
    made.type = column.type();
    made.shape.clear();
    made.layout.clear();
    made.class_counts = column.counts;
    made.class_names = column.names;
    const std::vector<std::byte> bytes = column.bytes();
    const std::uint64_t begin = index.kept_.size(), row_bytes = made.bytes_per_sample();
    index.kept_.insert(index.kept_.end(), bytes.begin(), bytes.end());
    index.stored_[field].clear();
    for (const RowBlock& block : index.blocks())
        index.stored_[field].push_back({.first_row = block.first,
                                        .offset = begin + block.first * row_bytes,
                                        .stored_bytes = block.rows * row_bytes,
                                        .decoded_bytes = block.rows * row_bytes,
                                        .rows = block.rows,
                                        .shard = kept_in_index});
}

// What Keras' users have is not what it looks like.
void ForeignOpening::suggest_one_hot() const {
    for (std::size_t f = 0; f < mappings_.size(); ++f) {
        const FieldMapping& mapping = mappings_[f];
        const Field& field = manifest_.fields[f];
        if (mapping.name == "labels" && mapping.layout == RowLayout::unstated &&
            field.shape.size() == 1)
            once(Level::info,
                 "labels are [n, {0}], taken for {0} labels a sample; if each row has one 1 and "
                 "else 0, write --field {1}={2}:onehot",
                 field.shape[0],
                 mapping.name,
                 mapping.hdf5_path);
    }
}

void ForeignOpening::read_labels(DatasetIndex& index) {
    for (std::size_t f = 0; f < mappings_.size(); ++f)
        if (first_rows_[f].is_text) {
            TextLabels texts;
            for (std::size_t number = 0; number < files_.size(); ++number)
                texts.add(sandbox_, rows_of(number, f));
            keep(index, f, texts.finish());
        } else if (mappings_[f].layout == RowLayout::one_hot) {
            keep(index, f, hot_rows_of(index, f));
        } else if (is_label(f)) {
            Field& field = manifest_.fields[f];
            field.class_counts = counted_classes(index, f);
            field.class_names = named_[f].names(field.class_counts.size());
            if (!field.class_names.empty()) field.class_counts.resize(field.class_names.size());
        }
}

}  // namespace lockstep
