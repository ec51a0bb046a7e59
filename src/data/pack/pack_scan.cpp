// SPDX-License-Identifier: Apache-2.0
#include "pack_scan.hpp"

#include "lockstep/core/error.hpp"

#include "format/labels.hpp"
#include "tally.hpp"
#include "team/ordered_work.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t parts = 256;
constexpr std::int64_t most_features = 4096;

bool is_real(const Field& field) {
    return field.type == ElementType::f32 || field.type == ElementType::f64;
}

// Makes empty tallies of one field; nothing if it needs none.
class TallyMaker {
  public:
    TallyMaker(const RowSource& source, const PackOptions& options, std::size_t number)
        : field_(source.fields()[number]) {
        const auto named = static_cast<std::int64_t>(options.class_names.size());
        limits_ = {options.classes > 0 ? options.classes : named, options.class_names};
        if (limits_.expected == 0)
            limits_.expected = static_cast<std::int64_t>(field_.class_names.size());
        const bool is_known = !field_.mean.empty() || !field_.class_counts.empty();
        if (is_known) return;
        const bool is_image = field_.layout == "CHW" && !field_.shape.empty();
        is_labels_ = is_of_classes(field_);
        is_pixels_ = field_.type == ElementType::u8 && is_image;
        const bool is_features =
            field_.shape.empty() || (field_.shape.size() == 1 && field_.shape[0] <= most_features);
        is_real_ = is_real(field_) && (is_image || is_features) && !is_label_name(field_.name);
        if (!is_real_) return;
        first_row_.resize(field_.bytes_per_sample());
        source.read(number, 0, first_row_);
    }

    bool needs_scan() const { return is_labels_ || is_pixels_ || is_real_; }
    bool is_exact() const { return !is_real_; }

    std::unique_ptr<Tally> make() const {
        if (is_labels_) return label_tally(field_, limits_);
        if (is_pixels_) return pixel_tally(field_);
        return real_tally(field_, first_row_);
    }

  private:
    const Field& field_;
    ClassLimits limits_;
    bool is_labels_ = false, is_pixels_ = false, is_real_ = false;
    std::vector<std::byte> first_row_;
};

using Words = std::vector<std::uint64_t>;

void append(Words& all, const Words& words) {
    all.push_back(words.size());
    all.insert(all.end(), words.begin(), words.end());
}

// The sums of each of this member's parts, end to end, each after its length; those of all of them
// where their order does not matter.
Words sums_of_parts(const RowSource& source,
                    const PackOptions& options,
                    std::size_t number,
                    const TallyMaker& tallies,
                    const std::function<void(std::uint64_t)>& report) {
    const auto rank = static_cast<std::uint64_t>(options.team.rank);
    const auto size = static_cast<std::uint64_t>(options.team.size);
    const std::uint64_t first = parts * rank / size, last = parts * (rank + 1) / size;
    const auto row_at = [&](std::uint64_t part) { return source.samples() * part / parts; };
    auto scan = [&](std::uint64_t at, Words& words) {
        const auto tally = tallies.make();
        std::vector<std::byte> bytes(source.fields()[number].bytes_per_sample());
        for (std::uint64_t row = row_at(first + at); row < row_at(first + at + 1); ++row) {
            source.read(number, row, bytes);
            tally->add(row, bytes);
        }
        words = tally->words();
    };
    const auto threads = static_cast<std::size_t>(worker_count(options.threads));
    std::vector<decltype(scan)> makers(threads, scan);
    std::vector<Words> slots(2 * threads);
    const auto total = tallies.make();
    Words all;
    work_in_order(last - first, makers, slots, [&](std::uint64_t at, const Words& words) {
        if (tallies.is_exact())
            total->add(words);
        else
            append(all, words);
        report(row_at(first + at + 1) - row_at(first));
    });
    if (tallies.is_exact()) append(all, total->words());
    return all;
}

void add_parts(const std::string& bytes, Tally& total) {
    Words words(bytes.size() / sizeof(std::uint64_t));
    std::memcpy(words.data(), bytes.data(), bytes.size());
    std::span<const std::uint64_t> rest(words);
    while (!rest.empty()) {
        const std::uint64_t length = rest[0];
        total.add(rest.subspan(1, length));
        rest = rest.subspan(1 + length);
    }
}

void scan_field(const RowSource& source,
                const PackOptions& options,
                const PackReport& report,
                std::size_t number,
                Field& field) {
    const Team& team = options.team;
    const std::uint64_t samples = source.samples();
    const std::uint64_t fields = source.fields().size();
    const auto tell = [&](std::uint64_t rows) {
        if (report)
            report({"scan", (number * samples + std::min(rows, samples)) / fields, samples});
    };
    std::optional<TallyMaker> tallies;
    const Words mine = together(team, [&] {
        tallies.emplace(source, options, number);
        Words sums;
        // The other members are about as far as this one.
        if (tallies->needs_scan())
            sums = sums_of_parts(source, options, number, *tallies, [&](std::uint64_t rows) {
                tell(rows * static_cast<std::uint64_t>(team.size));
            });
        tell(samples);  // may throw, which ends all members
        return sums;
    });
    if (!tallies->needs_scan()) return;
    const auto total = tallies->make();
    const std::string bytes(reinterpret_cast<const char*>(mine.data()),
                            mine.size() * sizeof mine[0]);
    for (const std::string& one : gather(team, bytes)) add_parts(one, *total);
    together(team, [&] { total->finish(samples, field); });
}

}  // namespace

void check_classes(const PackOptions& options) {
    const auto named = static_cast<std::int64_t>(options.class_names.size());
    check(named == 0 || options.classes == 0 || named == options.classes, [&] {
        return Error("E106",
                     fmt::format("{} class names for {} classes", named, options.classes),
                     "each class has one name",
                     "give as many names as classes, or only the names");
    });
    check(options.classes >= 0 && options.classes <= max_classes, [&] {
        return Error("E102",
                     fmt::format("{} classes", options.classes),
                     fmt::format("0 (count them) to {} are possible", max_classes));
    });
}

std::vector<Field> scan_fields(const RowSource& source,
                               const PackOptions& options,
                               const PackReport& report) {
    std::vector<Field> fields = source.fields();
    for (std::size_t number = 0; number < fields.size(); ++number)
        scan_field(source, options, report, number, fields[number]);
    return fields;
}

}  // namespace lockstep
