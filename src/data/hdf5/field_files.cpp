// SPDX-License-Identifier: Apache-2.0
// Several sets of files as one data set.
//
// Fields may lie in files of their own. Each set of files is opened by itself, and their indexes
// become one, in which the files of a field alone are shards without samples, like those that links
// lead to:
//
//     --data 'x-*.h5' --field images=/x --field labels=y.h5:/y
//
//     shards   y.h5 (0)   x-1.h5 (60)   x-2.h5 (40)
//     of /x                ^             ^
//     of /y    ^ rows 0 to 99
//
// Packed data sets come one after another, in the order given. Each begins new blocks, as files of
// others do, so that sets of any block size join.
//
// What must never happen: rows of different samples are joined. So the numbers of rows must agree.
//
// Tested: data/hdf5/field_files_test.cpp.

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/foreign.hpp"

#include "contents.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {

fs::path common_folder(const std::vector<fs::path>& files) {
    fs::path folder = files[0].parent_path();
    for (const fs::path& file : files)
        while (std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first !=
               folder.end())
            folder = folder.parent_path();
    return folder;
}

std::vector<fs::path> canonical(std::vector<fs::path> files) {
    for (fs::path& file : files) {
        static_cast<void>(open_for_reading(file));
        file = fs::canonical(file);
    }
    return files;
}

void check_fields(const std::vector<FieldMapping>& fields) {
    std::set<std::string> names;
    for (const FieldMapping& field : fields)
        check(names.insert(field.name).second,
              "E235",
              fmt::format("field '{}' is described twice", field.name),
              "",
              "drop one of them");
    check(!fields.empty(), "E235", "no field is described");
}

namespace {

std::uint64_t largest_row(const DatasetIndex& index) {
    std::uint64_t bytes = 0;
    for (const Field& field : index.fields()) bytes = std::max(bytes, field.bytes_per_sample());
    return bytes;
}

std::string form_text(const Field& field) {
    return fmt::format("{} {} [{}]{}{}",
                       field.name,
                       element_name(field.type),
                       fmt::join(field.shape, ", "),
                       field.layout.empty() ? "" : " ",
                       field.layout);
}

void check_same_fields(const DatasetIndex& first, const DatasetIndex& other) {
    const auto refuse = [&](const std::string& why) {
        return Error("E208",
                     fmt::format("'{}' does not fit '{}'", other.place(), first.place()),
                     why,
                     "give data sets of the same fields and classes; what each has: lockstep data "
                     "inspect " +
                         shell_word(other.place()));
    };
    std::vector<std::string> forms, other_forms;
    for (const Field& field : first.fields()) forms.push_back(form_text(field));
    for (const Field& field : other.fields()) other_forms.push_back(form_text(field));
    check(forms == other_forms, [&] {
        return refuse(fmt::format("its fields are {}; those of the other are {}",
                                  fmt::join(other_forms, ", "),
                                  fmt::join(forms, ", ")));
    });
    for (std::size_t f = 0; f < first.fields().size(); ++f) {
        const Field &a = first.fields()[f], &b = other.fields()[f];
        check(a.class_names == b.class_names && a.columns == b.columns, [&] {
            return refuse(
                fmt::format("names of '{}' differ: {} here, {} there",
                            a.name,
                            fmt::join(b.class_names.empty() ? b.columns : b.class_names, ", "),
                            fmt::join(a.class_names.empty() ? a.columns : a.class_names, ", ")));
        });
    }
}

// Mean and deviation of all, by the numbers of samples.
void add_statistics(Field& sum, std::uint64_t samples, const Field& other, std::uint64_t more) {
    if (sum.mean.size() != other.mean.size()) sum.mean.clear(), sum.std.clear();
    const auto a = static_cast<double>(samples), b = static_cast<double>(more);
    for (std::size_t i = 0; i < sum.mean.size(); ++i) {
        const double mean = (a * sum.mean[i] + b * other.mean[i]) / (a + b);
        const double of_a = sum.mean[i] - mean, of_b = other.mean[i] - mean;
        const double variance = (a * (sum.std[i] * sum.std[i] + of_a * of_a) +
                                 b * (other.std[i] * other.std[i] + of_b * of_b)) /
                                (a + b);
        sum.mean[i] = mean;
        sum.std[i] = std::sqrt(variance);
    }
    sum.class_counts.resize(std::max(sum.class_counts.size(), other.class_counts.size()));
    for (std::size_t i = 0; i < other.class_counts.size(); ++i)
        sum.class_counts[i] += other.class_counts[i];
}

// The folders, if `where` names several packed data sets with commas between them; else none.
std::vector<fs::path> packed_sets(const fs::path& where) {
    if (fs::exists(status_of(where))) return {};
    std::vector<fs::path> sets;
    for (const std::string& place : split(where.string(), ',')) {
        if (!is_packed(place)) return {};
        sets.push_back(fs::canonical(place));
    }
    return sets.size() > 1 ? sets : std::vector<fs::path>{};
}

}  // namespace

/// One index of several, which a DatasetIndex lets see its parts.
class FieldsOfFiles {
  public:
    FieldsOfFiles(const std::vector<fs::path>& files, const std::vector<FieldMapping>& fields)
        : asked_{.files = files, .fields = fields} {
        check_fields(fields);
        sets_.push_back({canonical(files), {}});
        for (const FieldMapping& field : fields) {
            const std::vector<fs::path> own =
                field.file.empty() ? sets_[0].files : canonical(foreign_files(field.file));
            auto found = std::ranges::find(sets_, own, &SetOfFiles::files);
            if (found == sets_.end()) found = sets_.insert(sets_.end(), {own, {}});
            places_.push_back(
                {static_cast<std::size_t>(found - sets_.begin()), found->fields.size()});
            found->fields.push_back(field);
        }
        check(!sets_[0].fields.empty(),
              "E235",
              "each field has a file of its own, and none lies in the data",
              "",
              "give the file of one field as --data, and its --field without a file");
        check_are_apart();
    }

    DatasetIndex run() {
        for (const SetOfFiles& set : sets_) parts_.push_back(opened(set, 0, Telling::warnings));
        // What is shuffled as one is read as one: by the blocks of the largest rows.
        const auto largest = std::ranges::max_element(parts_, {}, largest_row);
        const std::uint32_t rows = largest->manifest().block_rows;
        for (std::size_t s = 0; s < sets_.size(); ++s)
            if (parts_[s].manifest().block_rows != rows)
                parts_[s] = opened(sets_[s], rows, Telling::nothing);
        for (std::size_t s = 1; s < sets_.size(); ++s) check_rows(s);
        return joined();
    }

  private:
    /// Fields that lie in the same files.
    struct SetOfFiles {
        std::vector<fs::path> files;
        std::vector<FieldMapping> fields;
    };

    void check_are_apart() const {
        std::set<fs::path> known;
        for (const SetOfFiles& set : sets_)
            for (const fs::path& file : set.files)
                check(known.insert(file).second,
                      "E235",
                      fmt::format("'{}' is given twice", file.string()),
                      "files of one field alone are other files than those of the data",
                      "leave it out of --data, or out of --field");
    }

    DatasetIndex opened(const SetOfFiles& set, std::uint32_t block_rows, Telling telling) const {
        std::size_t files = 0;
        for (const SetOfFiles& each : sets_) files += each.files.size();
        return open_files(set.files,
                          set.fields,
                          {.telling = telling,
                           .whole = &asked_,
                           .block_rows = block_rows,
                           .warned_of = &set == &sets_[0] ? files : 0});
    }

    void check_rows(std::size_t set) const {
        const DatasetIndex &first = parts_[0], &other = parts_[set];
        const auto rows = [](const SetOfFiles& each, const DatasetIndex& index) {
            return RowsRequest{.path = each.files[0],
                               .dataset = each.fields[0].hdf5_path,
                               .rows = index.samples()};
        };
        check(first.samples() == other.samples(),
              [&] { return other_samples(rows(sets_[0], first), rows(sets_[set], other)); });
    }

    // The files of fields alone come first: the last shard of an index has samples.
    void add_shards(DatasetIndex& whole, Manifest& manifest) {
        std::vector<fs::path> files;
        for (const DatasetIndex& part : parts_)
            for (const Shard& shard : part.shards()) files.push_back(part.path() / shard.name);
        whole.path_ = common_folder(files);
        manifest.shards.clear();
        first_shards_.resize(parts_.size());
        for (std::size_t i = 1; i <= parts_.size(); ++i) {
            const std::size_t p = i % parts_.size();
            const DatasetIndex& part = parts_[p];
            first_shards_[p] = static_cast<std::uint32_t>(manifest.shards.size());
            whole.stamps_.insert(whole.stamps_.end(), part.stamps_.begin(), part.stamps_.end());
            for (Shard shard : part.shards()) {
                shard.name = (part.path() / shard.name).lexically_relative(whole.path_).string();
                if (p > 0) shard.samples = shard.first_sample = 0;
                manifest.shards.push_back(std::move(shard));
            }
        }
    }

    DatasetIndex joined() {
        DatasetIndex whole;
        Manifest manifest = parts_[0].manifest();
        add_shards(whole, manifest);
        manifest.fields.clear();
        std::vector<std::uint64_t> kept_begins;
        for (const DatasetIndex& part : parts_) {
            kept_begins.push_back(whole.kept_.size());
            whole.kept_.insert(whole.kept_.end(), part.kept_.begin(), part.kept_.end());
            for (const std::string& warning : part.warnings_)
                if (std::ranges::find(whole.warnings_, warning) == whole.warnings_.end())
                    whole.warnings_.push_back(warning);
        }
        whole.stored_.resize(places_.size());
        for (std::size_t f = 0; f < places_.size(); ++f) {
            const auto& [p, place] = places_[f];
            Field field = parts_[p].fields()[place];
            if (p > 0)
                field.source =
                    fmt::format("{}:{}",
                                sets_[p].files[0].lexically_relative(whole.path_).string(),
                                field.source);
            manifest.fields.push_back(std::move(field));
            std::vector<StoredBlock> blocks = parts_[p].stored_blocks(place);
            for (StoredBlock& block : blocks)
                if (block.shard == kept_in_index)
                    block.offset += kept_begins[p];
                else
                    block.shard += first_shards_[p];
            whole.append(f, blocks, parts_[p].forms());
        }
        whole.finish_joined(std::move(manifest), "foreign HDF5 files");
        return whole;
    }

    struct Place {
        std::size_t set = 0, field = 0;
    };
    AskedFiles asked_;
    std::vector<SetOfFiles> sets_;  // those of the data come first
    std::vector<Place> places_;     // by field
    std::vector<DatasetIndex> parts_;
    std::vector<std::uint32_t> first_shards_;  // by set
};

/// The same of packed data sets.
class PackedSets {
  public:
    explicit PackedSets(const std::vector<fs::path>& sets) {
        for (const fs::path& set : sets) {
            check(std::ranges::count(sets, set) == 1,
                  "E106",
                  fmt::format("'{}' is given twice", set.string()),
                  "its samples would count twice",
                  "drop one of them");
            parts_.push_back(DatasetIndex::open(set));
            check_same_fields(parts_.front(), parts_.back());
        }
    }

    DatasetIndex run() {
        DatasetIndex whole;
        std::vector<fs::path> files;
        for (const DatasetIndex& part : parts_)
            for (const Shard& shard : part.shards()) files.push_back(part.path() / shard.name);
        whole.path_ = common_folder(files);
        Manifest manifest = parts_[0].manifest();
        manifest.kind = ManifestKind::foreign;
        manifest.row_order = "source";
        manifest.shards.clear();
        manifest.samples = 0;
        whole.stored_.resize(manifest.fields.size());
        for (const DatasetIndex& part : parts_) add(part, whole, manifest);
        whole.finish_joined(std::move(manifest), "joined data sets");
        once(Level::info,
             "{} packed data sets are joined: {} samples, one set after another",
             parts_.size(),
             grouped(whole.samples()));
        return whole;
    }

  private:
    static void add(const DatasetIndex& part, DatasetIndex& whole, Manifest& manifest) {
        const auto first_shard = static_cast<std::uint32_t>(manifest.shards.size());
        const std::uint64_t first_row = manifest.samples;
        for (std::size_t f = 0; f < manifest.fields.size(); ++f) {
            if (first_row > 0)
                add_statistics(manifest.fields[f], first_row, part.fields()[f], part.samples());
            std::vector<StoredBlock> blocks = part.stored_blocks(f);
            for (StoredBlock& block : blocks) {
                block.first_row += first_row;
                block.shard += first_shard;
            }
            whole.append(f, blocks, part.forms());
        }
        for (Shard shard : part.shards()) {
            shard.name = (part.path() / shard.name).lexically_relative(whole.path_).string();
            shard.first_sample += first_row;
            shard.index.clear();
            manifest.shards.push_back(std::move(shard));
        }
        manifest.samples += part.samples();
        whole.stamps_.insert(whole.stamps_.end(), part.stamps_.begin(), part.stamps_.end());
        whole.warnings_.insert(whole.warnings_.end(), part.warnings_.begin(), part.warnings_.end());
    }

    std::vector<DatasetIndex> parts_;
};

DatasetIndex DatasetIndex::open_foreign(const std::vector<fs::path>& files,
                                        const std::vector<FieldMapping>& fields) {
    const bool are_apart =
        std::ranges::any_of(fields, [](const FieldMapping& field) { return !field.file.empty(); });
    return are_apart ? FieldsOfFiles(files, fields).run() : open_files(files, fields);
}

DatasetIndex DatasetIndex::open(const fs::path& where, const std::vector<FieldMapping>& fields) {
    const std::vector<fs::path> sets = packed_sets(where);
    check(fields.empty() || (!is_packed(where) && sets.empty()),
          "E106",
          fmt::format("'{}' is a packed data set, whose fields have names", where.string()),
          "--field is for HDF5 files that others wrote",
          "drop it");
    if (!fields.empty()) return open_foreign(foreign_files(where), fields);
    if (!sets.empty()) return PackedSets(sets).run();
    check_needs_no_fields(where, "--field");
    return open(where);
}

DatasetIndex DatasetIndex::open_test(const fs::path& where,
                                     const std::vector<FieldMapping>& trained,
                                     const std::vector<FieldMapping>& own) {
    if (is_packed(where) || !packed_sets(where).empty()) return open(where, own);
    std::vector<FieldMapping> fields = own;
    for (const FieldMapping& field : trained) {
        if (std::ranges::find(own, field.name, &FieldMapping::name) != own.end()) continue;
        check(field.file.empty(),
              "E105",
              fmt::format("where is field '{}' of '{}'?", field.name, where.string()),
              fmt::format("that of the training data lies in a file of its own, '{}'",
                          field.file.string()),
              fmt::format("say it with --test-field (train) or --field (eval, predict), "
                          "such as {}=FILE:{}",
                          field.name,
                          field.hdf5_path));
        fields.push_back(field);
    }
    if (fields.empty()) check_needs_no_fields(where, "--test-field");
    return open(where, fields);
}

}  // namespace lockstep
