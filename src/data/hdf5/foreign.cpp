// SPDX-License-Identifier: Apache-2.0
// Makes an index of HDF5 files that others wrote: a child process describes file after file, each
// is checked against the first and added as a shard, and labels are read once at the end.
//
// A data set that a link leads to lies in a file that nobody named, and so do the parts of a
// virtual one. Such a file becomes a shard without samples of its own, in front of the file that
// names it, so that its blocks are read, watched and told of like those of any other:
//
//     a.h5   /x -> data-a.h5:/x   /y     shards  data-a.h5 (0)  a.h5 (60)  data-b.h5 (0)  b.h5 (9)
//     b.h5   /x -> data-b.h5:/x   /y      of /x       ^                         ^
//                                         of /y                     ^                         ^
//
// What must never happen: a file is opened that the user does not trust. So links are followed only
// where `Links` says so.
//
// Tested: data/hdf5/foreign_test.cpp, foreign_types_test.cpp, foreign_labels_test.cpp;
// data/foreign_matrix/foreign_matrix_test.cpp.
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/version.hpp"

#include "contents.hpp"
#include "format/index_columns.hpp"
#include "format/labels.hpp"
#include "format/manifest_fields.hpp"
#include "row_form.hpp"
#include "row_layout.hpp"
#include "sandbox.hpp"
#include "shard_probe.hpp"
#include "stored_blocks.hpp"
#include "stream/read_plan.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

// What a file without hashes is known by: its size and time.
ByteWriter identity_of(const fs::path& file, std::uint64_t bytes) {
    ByteWriter identity;
    identity.add(bytes);
    const auto time = fs::last_write_time(file).time_since_epoch();
    identity.add(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()));
    return identity;
}

std::string hash_of(ByteWriter identity) {
    return hash128(std::span<const std::byte>(identity.finish())).hex();
}

/// The reason why a data set is not streamed although packing may read it: E234, E212 (a filter),
/// E205 (a link). Its remedy is found later.
struct NotStreamable : Error {
    NotStreamable(const fs::path& file,
                  const FieldMapping& field,
                  const std::string& why,
                  std::string_view code)
        : Error(code.empty() ? "E234" : code,
                fmt::format("'{}' of '{}' cannot be streamed", field.hdf5_path, file.string()),
                why) {}
};

}  // namespace

/// The work of one open_files(), which the index lets see its parts. Used once, by one thread.
class ForeignOpening {
  public:
    /// `becomes_labels`: fields whose numbers become i64, as a run before this one found.
    ForeignOpening(const std::vector<fs::path>& files,
                   const std::vector<FieldMapping>& mappings,
                   const OpeningOptions& options,
                   std::vector<bool>& becomes_labels)
        : asked_{.files = canonical(files), .fields = mappings},
          options_(options),
          becomes_labels_(becomes_labels),
          named_(mappings.size()) {
        for (const FieldMapping& mapping : mappings) {
            request_.datasets.push_back(mapping.hdf5_path);
            if (mapping.links == Links::followed) request_.links = Links::followed;
        }
        asked_.links = request_.links;
    }

    /// Nothing where it must begin again, because labels of files differ in their type.
    std::optional<DatasetIndex> run() {
        try {
            ask(0);
            for (; number_ < asked_.files.size(); ++number_) {
                take_answer();
                settle_columns(
                    facts_.datasets, asked_.fields, options_.whole && asked_.files.size() == 1);
                if (number_ + 1 < asked_.files.size()) ask(number_ + 1);  // looked at meanwhile
                if (!add_file()) return {};
            }
            complete_index();
        } catch (const NotStreamable& error) {
            throw Error(error.code(),
                        error.what(),
                        error.why(),
                        way_to_pack(file(), asked_, options_.whole, error.why()));
        }
        if (options_.telling == Telling::warnings) warn();
        return std::move(index_);
    }

    /// Returns the candidate of the first field in the first file.
    Candidate look() {
        ask(0);
        take_answer();
        Candidate found{asked_.fields[0].hdf5_path, facts_.datasets[0], "", nullptr};
        if (is_absent(found.facts)) {  // what is said of these lists candidates, too
            found.obstacle = "it was listed, but is not there";
            return found;
        }
        try {
            add_file();
            complete_index();
            found.rows = std::make_shared<const DatasetIndex>(std::move(index_));
        } catch (const Error& error) {
            found.obstacle = error.why().empty() ? error.what() : error.why();
        }
        return found;
    }

  private:
    const fs::path& file() const { return asked_.files[number_]; }

    void ask(std::size_t number) {
        file_stamps_.push_back(file_stamp(asked_.files[number]));
        check_is_whole_hdf5(asked_.files[number], 0);
        request_.path = asked_.files[number];
        sandbox_.ask(request_);
    }

    // What was seen of a linked file is of the time that its stamp says: it is only known by having
    // looked once.
    void take_answer() {
        facts_ = sandbox_.answer();
        bool has_new = false;
        for (const DatasetFacts& facts : facts_.datasets)
            for (const DatasetFacts& part : facts.stored()) {
                if (part.file.empty()) continue;
                const fs::path file = fs::canonical(part.file);
                if (linked_.try_emplace(file, file_stamp(file)).second) has_new = true;
            }
        if (has_new) facts_ = sandbox_.look(request_);
    }

    RowForm rows_in_file(std::size_t field) const {
        const FieldMapping& mapping = asked_.fields[field];
        const DatasetFacts& facts = facts_.datasets[field];
        if (is_absent(facts)) throw no_such_dataset(file(), asked_, field);
        const bool is_class =
            facts.number &&
            (facts.number->is_whole ? becomes_labels_[field] : mapping.layout == RowLayout::label);
        try {
            return form_of(facts, mapping, file(), Road::stream, is_class);
        } catch (const Unfit& found) {
            throw NotStreamable(file(), mapping, found.why, found.code);
        }
    }

    // Returns true if the file has the same labels as the first in another type.
    bool may_become_labels(std::size_t field) const {
        const RowForm &rows = rows_[field], &first = first_rows_[field];
        return rows.type != first.type && rows.is_text == first.is_text &&
               may_be_label(asked_.fields[field]) && !becomes_labels_[field] &&
               is_whole(rows.type) && is_whole(first.type) && first.shape.empty() &&
               facts_.datasets[field].has_one_number_a_row();
    }

    void add_field(std::size_t field) {
        const FieldMapping& mapping = asked_.fields[field];
        const RowForm& rows = first_rows_.emplace_back(rows_[field]);
        const std::uint64_t samples = facts_.datasets[field].size[0];
        check_dimensions(asked_, field, file(), samples, rows.shape);
        manifest_.fields.push_back({.name = mapping.name,
                                    .type = rows.type,
                                    .shape = rows.shape,
                                    .layout = layout_text(mapping.layout),
                                    .source = mapping.hdf5_path});
        check_is_settled(mapping, manifest_.fields[field], file());
    }

    // The file as a shard, and its fields, which are those of the first.
    // False where labels must become i64, in all files.
    bool add_file() {
        rows_.clear();
        for (std::size_t f = 0; f < asked_.fields.size(); ++f) {
            const DatasetFacts &facts = facts_.datasets[f], &before = facts_.datasets[0];
            rows_.push_back(rows_in_file(f));
            if (number_ == 0) add_field(f);
            check(facts.size[0] == before.size[0],
                  [&] { return other_rows(file(), asked_, 0, before.size, f, facts.size); });
            named_[f].add(facts, asked_.fields[f], file());
            const std::string warning = unasked_unpacking(facts, asked_.fields[f]);
            if (!warning.empty()) unasked_.try_emplace(asked_.fields[f].name, warning);
            if (may_become_labels(f)) {
                becomes_labels_[f] = true;
                return false;
            }
            check_like(rows_[f], first_rows_[f], asked_, f, file(), asked_.files[0]);
        }
        add_shards();
        samples_.push_back(facts_.datasets[0].size[0]);
        manifest_.samples += samples_.back();
        check(manifest_.samples <= most_samples, [&] {
            return NotStreamable(file(), asked_.fields[0], "there are too many samples", "");
        });
        if (number_ == 0)
            manifest_.block_rows =
                options_.block_rows > 0 ? options_.block_rows : usual_block_rows();
        add_blocks();
        return true;
    }

    std::uint32_t add_shard(const fs::path& path, std::uint64_t samples, const FileStamp& stamp) {
        const bool is_new = known_.insert(path).second;
        if (!is_new)
            throw NotStreamable(
                path, asked_.fields[0], "several of the files link to it, or it is one", "E205");
        manifest_.shards.push_back({.name = path.string(),
                                    .bytes = fs::file_size(path),
                                    .samples = samples,
                                    .first_sample = manifest_.samples});
        index_.stamps_.push_back(stamp);
        return static_cast<std::uint32_t>(manifest_.shards.size() - 1);
    }

    // What is read of `path`, which a link of the file leads to, and its number.
    std::uint32_t add_linked_shard(const fs::path& path) {
        const auto stamp = linked_.find(path);
        if (stamp == linked_.end())
            throw NotStreamable(
                path, asked_.fields[0], "what leads to it changed while it was looked at", "E205");
        const std::uint32_t number = add_shard(path, 0, stamp->second);
        Shard& shard = manifest_.shards.back();
        shard.xxh3_128 = hash_of(identity_of(path, shard.bytes));
        return number;
    }

    // The file, and before it those that its links lead to.
    void add_shards() {
        std::map<fs::path, std::uint32_t> linked;
        part_shards_.clear();
        for (const DatasetFacts& facts : facts_.datasets)
            for (const DatasetFacts& part : facts.stored()) {
                if (part.file.empty()) continue;
                const fs::path path = fs::canonical(part.file);
                if (!linked.contains(path)) linked[path] = add_linked_shard(path);
                part_shards_[part.file] = linked[path];
            }
        part_shards_[""] = add_shard(file(), facts_.datasets[0].size[0], file_stamps_[number_]);
    }

    // As the field with the largest samples has them.
    std::uint32_t usual_block_rows() const {
        const auto bytes_of = [&](std::size_t f) { return manifest_.fields[f].bytes_per_sample(); };
        std::size_t largest = 0;
        for (std::size_t f = 0; f < manifest_.fields.size(); ++f)
            if (!first_rows_[f].is_text && asked_.fields[f].layout != RowLayout::one_hot &&
                bytes_of(f) > bytes_of(largest))
                largest = f;
        return rows_of_blocks(facts_.datasets[largest].stored()[0], bytes_of(largest));
    }

    void add_blocks() {
        Shard& shard = manifest_.shards.back();
        index_.stored_.resize(asked_.fields.size());
        ByteWriter identity = identity_of(file(), shard.bytes);
        for (std::size_t f = 0; f < asked_.fields.size(); ++f)
            if (!rows_[f].is_text) add_blocks_of(f, identity);
        shard.xxh3_128 = hash_of(std::move(identity));
    }

    void add_blocks_of(std::size_t field, ByteWriter& identity) {
        std::uint64_t first = manifest_.shards.back().first_sample;
        const RowForm& rows = rows_[field];
        for (const DatasetFacts& part : facts_.datasets[field].stored()) {
            const std::uint32_t shard = part_shards_.at(part.file);
            FoundBlocks found = blocks_of(part,
                                          {.first_sample = first,
                                           .samples = part.size[0],
                                           .row_bytes = manifest_.fields[field].bytes_per_sample(),
                                           .file_bytes = manifest_.shards[shard].bytes,
                                           .shard = shard,
                                           .contiguous_rows = manifest_.block_rows,
                                           .widening = rows.widening,
                                           .unpacking = rows.unpacking},
                                          index_.forms_);
            if (!found.fault.empty())
                throw NotStreamable(
                    file(), asked_.fields[field], found.fault, found.lacks_filter ? "E212" : "");
            identity.add(part.offset);
            for (const auto* column : {&part.chunks.offsets, &part.chunks.bytes})
                identity.add(hash64(std::as_bytes(std::span(*column))));
            auto& blocks = index_.stored_[field];
            blocks.insert(blocks.end(), found.blocks.begin(), found.blocks.end());
            first += part.size[0];
        }
        if (!rows.unpacking) return;
        // Whoever changes an attribute changes the data.
        const Filter filter = rows.unpacking->as_filter();
        identity.add(filter.element);
        identity.add(hash64(std::as_bytes(std::span(filter.values))));
    }

    void complete_index() {
        const fs::path above = common_folder({known_.begin(), known_.end()});
        for (Shard& shard : manifest_.shards)
            shard.name = fs::path(shard.name).lexically_relative(above).string();
        const std::vector<fs::path>& files = asked_.files;
        manifest_.kind = ManifestKind::foreign;
        manifest_.name =
            (files.size() == 1 ? files[0].stem() : common_folder(files).filename()).string();
        manifest_.writer = version_text();
        manifest_.row_order = "source";
        manifest_.codec = Codec::filters;
        manifest_.uuid = uuid_from(hash128(std::string_view(manifest_text(manifest_))).hex());
        index_.path_ = above;
        describe();
        read_labels();
        describe();
        index_.check_blocks();
    }

    void describe() {
        index_.manifest_text_ = manifest_text(manifest_);
        index_.manifest_ =
            parse_manifest(index_.manifest_text_, "foreign HDF5 files", ManifestKind::foreign);
    }

    void read_labels() {
        for (std::size_t f = 0; f < asked_.fields.size(); ++f) {
            const FieldMapping& mapping = asked_.fields[f];
            std::vector<RowsRequest> files;
            for (std::size_t number = 0; number < samples_.size(); ++number)
                files.push_back({.path = asked_.files[number],
                                 .dataset = mapping.hdf5_path,
                                 .rows = samples_[number],
                                 .links = mapping.links});
            if (first_rows_[f].is_text) {
                TextLabels texts;
                for (const RowsRequest& file : files) texts.add(sandbox_, file);
                keep(f, texts.finish());
            } else if (mapping.layout == RowLayout::one_hot) {
                keep(f, classes_of_hot_rows(index_, f, files));
            } else if (may_be_label(mapping)) {
                count_classes(f);
            }
        }
    }

    void count_classes(std::size_t field) {
        Field& made = manifest_.fields[field];
        if (!is_of_classes(made) && !(made.shape.empty() && is_whole(made.type))) {
            const bool is_stated = asked_.fields[field].layout == RowLayout::label;
            return check(!is_stated, [&] { return no_label(asked_, field, first_rows_[field]); });
        }
        made.class_counts = counted_classes(index_, field);
        made.class_names = named_[field].names(made.class_counts.size());
        if (!made.class_names.empty()) made.class_counts.resize(made.class_names.size());
    }

    // In blocks like those of files, so that a window reads no more than its own.
    void keep(std::size_t field, const LabelColumn& column) {
        Field& made = manifest_.fields[field];
        made.type = column.type();
        made.shape.clear();
        made.layout.clear();
        made.class_counts = column.counts;
        made.class_names = column.names;
        const std::vector<std::byte> bytes = column.bytes();
        const std::uint64_t begin = index_.kept_.size(), row_bytes = made.bytes_per_sample();
        index_.kept_.insert(index_.kept_.end(), bytes.begin(), bytes.end());
        index_.stored_[field].clear();
        for (const RowBlock& block : index_.blocks())
            index_.stored_[field].push_back({.first_row = block.first,
                                             .offset = begin + block.first * row_bytes,
                                             .stored_bytes = block.rows * row_bytes,
                                             .decoded_bytes = block.rows * row_bytes,
                                             .rows = block.rows,
                                             .shard = kept_in_index});
    }

    void warn() {
        if (const std::size_t files = options_.warned_of.value_or(asked_.files.size()); files > 0)
            index_.warnings_.push_back(fmt::format(
                "{} HDF5 file(s) that others wrote are streamed. They have no hashes, so that "
                "damage goes unnoticed unless the files have checksums. Their rows are not "
                "shuffled: sorted rows mix only within windows. They have no mean and deviation, "
                "and only size, time and layout show changes; 'lockstep data pack --hdf5' makes "
                "shards of them",
                grouped(files)));
        for (const auto& [path, stamp] : linked_)
            once(Level::info, "links lead to '{}', which is also read", path.string());
        for (const auto& [field, warning] : unasked_) index_.warnings_.push_back(warning);
        for (const std::string& warning : index_.warnings_) once(Level::warn, "{}", warning);
        for (const std::string& cost : cut_costs(index_)) once(Level::info, "{}", cost);
        for (std::size_t f = 0; f < asked_.fields.size(); ++f)
            suggest_one_hot(asked_.fields[f], manifest_.fields[f]);
    }

    AskedFiles asked_;
    const OpeningOptions& options_;
    std::vector<bool>& becomes_labels_;           // by field: elements of any type become i64
    std::vector<NamedClasses> named_;             // by field
    std::map<std::string, std::string> unasked_;  // warnings, by field
    FileRequest request_;
    Sandbox sandbox_;

    std::size_t number_ = 0;                            // of the file that is being added
    FileFacts facts_;                                   // of it
    std::vector<RowForm> rows_, first_rows_;            // by field, of it and of the first file
    std::map<std::string, std::uint32_t> part_shards_;  // by the name that its parts have

    Manifest manifest_;
    DatasetIndex index_;
    std::vector<std::uint64_t> samples_;    // by file
    std::vector<FileStamp> file_stamps_;    // by file, before it was read
    std::map<fs::path, FileStamp> linked_;  // stamps of files that links lead to
    std::set<fs::path> known_;              // files that are already shards
};

DatasetIndex open_files(const std::vector<fs::path>& files,
                        const std::vector<FieldMapping>& fields,
                        const OpeningOptions& options) {
    check_fields(fields);
    check(!files.empty(), "E201", "no HDF5 files are named");
    std::vector<bool> becomes_labels(fields.size());
    for (;;)
        if (auto index = ForeignOpening(files, fields, options, becomes_labels).run())
            return *std::move(index);
}

Candidate candidate_of(const fs::path& file, const FieldMapping& field) {
    std::vector<bool> becomes_labels(1);
    return ForeignOpening({file}, {field}, {}, becomes_labels).look();
}

}  // namespace lockstep
