// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/first_look.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include "contact_sheet.hpp"
#include "seen.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Of what may be classes: one whole number a sample, and not so many that they are ids.
std::vector<ClassCount> classes_of(const LookedAt& data, const SampledRows& sample) {
    constexpr std::size_t most = 100;
    std::vector<ClassCount> classes;
    const Field& field = data.index->fields()[data.field];
    for (std::size_t i = 0; i < field.class_counts.size(); ++i)
        classes.push_back({i < field.class_names.size() ? field.class_names[i] : std::to_string(i),
                           field.class_counts[i]});
    const std::int64_t elements = field.shape.empty()       ? 1
                                  : field.shape.size() == 1 ? field.shape[0]
                                                            : 0;
    if (!classes.empty() || elements != 1) return classes;
    for (const auto& [number, count] : whole_counts(sample))
        classes.push_back({std::to_string(number), count});
    return classes.size() > most ? std::vector<ClassCount>{} : classes;
}

class Look {
  public:
    Look(LookedAtPlace place, const FirstLookOptions& options) : options_(options) {
        seen_.place = std::move(place);
        for (const LookedAt& data : seen_.place.all) seen_.values.push_back(look_into(data));
        if (!seen_.place.is_packed)
            seen_.place.fields = suggested_mappings(seen_.place.candidates, known_values());
        seen_.train = train_command(seen_);
        if (!options_.sheet.empty()) write_sheet();
    }

    const Seen& seen() const { return seen_; }

  private:
    // Damage is said, and hinders nothing else.
    std::optional<SeenValues> look_into(const LookedAt& data) {
        if (!data.obstacle.empty() || !data.index) return {};
        std::optional<SampledRows> sample;
        try {
            sample = sample_rows(data.index, data.field);
        } catch (const Error& error) {
            return SeenValues{.fault = error.code() + std::string(": ") + error.what(),
                              .is_damaged = true};
        }
        if (!sample) return SeenValues{.fault = "too large a chunk or sample for a first look"};
        SeenValues values{.summary = summary_of(*sample),
                          .is_one_hot = is_one_hot(*sample),
                          .rows = sample->rows,
                          .of = sample->of};
        values.classes = classes_of(data, *sample);
        const bool is_counted = !data.index->fields()[data.field].class_counts.empty();
        values.counted_rows = is_counted ? sample->of : sample->rows;
        if (is_images(data)) images_ = std::move(sample);
        return values;
    }

    std::vector<std::optional<KnownValues>> known_values() const {
        std::vector<std::optional<KnownValues>> known;
        for (const std::optional<SeenValues>& values : seen_.values) {
            known.emplace_back();
            if (!values || values->summary.count == 0) continue;
            const ValueSummary& summary = values->summary;
            known.back() = KnownValues{summary.least,
                                       summary.most,
                                       summary.are_whole && summary.not_finite == 0,
                                       values->is_one_hot};
        }
        return known;
    }

    // What --field images= is suggested for; of packed data, the field of that name.
    bool is_images(const LookedAt& data) const {
        const std::size_t dimensions = data.size.size();
        if (options_.sheet.empty() || dimensions < 3 || dimensions > 4) return false;
        if (seen_.place.fields.empty()) return data.name == "images";
        return seen_.place.fields[0].name == "images" &&
               seen_.place.fields[0].hdf5_path == data.name;
    }

    PixelOrder order() const {
        if (images_->shape.size() == 2) return PixelOrder::plane;
        const bool is_last =
            !seen_.place.fields.empty() && seen_.place.fields[0].layout == RowLayout::hwc;
        return is_last ? PixelOrder::channels_last : PixelOrder::channels_first;
    }

    void write_sheet() {
        check(images_.has_value(), [&] {
            return Error("E217",
                         fmt::format("there are no images for '{}'", options_.sheet.string()),
                         "images are [samples, C, H, W], [samples, H, W, C] or [samples, H, W] of "
                         "numbers that can be streamed",
                         "leave out --png");
        });
        write_file_atomically(options_.sheet, encoded_png(contact_sheet(*images_, order())));
        seen_.sheet = SeenSheet{options_.sheet, images_on_sheet(*images_), images_->of};
    }

    const FirstLookOptions& options_;
    Seen seen_;
    std::optional<SampledRows> images_;
};

}  // namespace

std::string first_look(const std::filesystem::path& where, const FirstLookOptions& options) {
    check(options.sheet.empty() || !fs::exists(options.sheet), [&] {
        return Error("E407",
                     fmt::format("'{}' exists already", options.sheet.string()),
                     "it would be overwritten",
                     "give another name, or remove it first");
    });
    const Look look(look_at_place(where), options);
    return options.as_json ? json_text(look.seen()) : tree_text(look.seen(), options.columns);
}

}  // namespace lockstep
