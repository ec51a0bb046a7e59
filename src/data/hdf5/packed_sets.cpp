// SPDX-License-Identifier: Apache-2.0
// Several packed data sets as one: their shards one after another, in the order given. Each begins
// new blocks, as files of others do, so that sets of any block size join.
//
// Tested: data/hdf5/field_files_test.cpp.

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "contents.hpp"
#include "foreign.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

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

}  // namespace

std::vector<fs::path> packed_sets(const fs::path& where) {
    if (fs::exists(status_of(where))) return {};
    std::vector<fs::path> sets;
    for (const std::string& place : split(where.string(), ',')) {
        if (!is_packed(place)) return {};
        sets.push_back(fs::canonical(place));
    }
    return sets.size() > 1 ? sets : std::vector<fs::path>{};
}

/// Joins indexes, which let it see their parts.
class PackedSets {
  public:
    explicit PackedSets(const std::vector<fs::path>& sets) {
        for (const fs::path& set : sets) {
            check(std::ranges::count(sets, set) == 1, [&] {
                return Error("E106",
                             fmt::format("'{}' is given twice", set.string()),
                             "its samples would count twice",
                             "drop one of them");
            });
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

DatasetIndex open_packed_sets(const std::vector<fs::path>& sets) {
    return PackedSets(sets).run();
}

}  // namespace lockstep
