// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/manifest.hpp"

#include "format/labels.hpp"
#include "pack_space.hpp"
#include "stream/ordered_work.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

namespace lockstep {
namespace {

// What a part of the rows adds up to, for one field; sums of parts are sums of the whole.

/// Sums of one field over some rows. One thread.
class Tally {
  public:
    virtual ~Tally() = default;

    /// Returns true if sums do not depend on the order in which parts are added.
    virtual bool is_exact() const { return true; }

    /// Adds row number `row`. Errors: E210.
    virtual void add(std::uint64_t row, std::span<const std::byte> bytes) = 0;

    /// Adds what another of the same kind summed; the order of calls may matter.
    virtual void add(std::span<const std::uint64_t> words) = 0;

    /// What it summed, for add() elsewhere.
    virtual std::vector<std::uint64_t> words() const = 0;

    /// Puts the result into `field`, of `samples` rows. Errors: E210.
    virtual void finish(std::uint64_t samples, Field& field) const = 0;
};

/// What labels may be.
struct ClassLimits {
    std::int64_t expected = 0;  ///< 0: as many as there are
    std::vector<std::string> names;
};

/// Counts of the classes in `field`, of whole numbers; it must outlive the tally.
class LabelTally : public Tally {
  public:
    LabelTally(const Field& field, const ClassLimits& limits) : field_(field), limits_(limits) {
        counts_.resize(static_cast<std::size_t>(limits.expected));
    }

    void add(std::uint64_t row, std::span<const std::byte> bytes) override {
        const std::int64_t limit = limits_.expected > 0 ? limits_.expected : max_classes;
        if (const auto bad = first_label_beyond(field_, bytes, limit))
            throw Error("E210",
                        fmt::format("{} of input sample {} is out of range",
                                    label_text(field_, bad->label),
                                    grouped(row)),
                        fmt::format("{} classes are numbered 0 to {}", limit, limit - 1),
                        limits_.expected > 0 && bad->label >= limit
                            ? "drop --classes: then the largest label decides the number of classes"
                            : "call the field 'targets' to predict its numbers, or number its "
                              "classes from 0 on");
        count_labels(field_, bytes, counts_);
    }
    void add(std::span<const std::uint64_t> words) override {
        counts_.resize(std::max(counts_.size(), words.size()));
        for (std::size_t i = 0; i < words.size(); ++i) counts_[i] += words[i];
    }
    std::vector<std::uint64_t> words() const override { return counts_; }
    void finish(std::uint64_t, Field& field) const override {
        field.class_counts = counts_;
        if (!limits_.names.empty()) field.class_names = limits_.names;
        if (limits_.expected == 0) look_at_classes(field);
    }

  private:
    // Of those that were counted: whoever said how many there are knows of the others.
    static void look_at_classes(const Field& field) {
        check_class_numbers(field);
        if (const std::string text = unused_classes_text(field); !text.empty())
            once(Level::warn, "{}", text);
        const bool is_learned = field.name == "labels" || field.name == "masks";
        if (is_learned && field.classes() == 1)
            once(Level::warn,
                 "{}: only one class, from which 'lockstep train' can learn nothing; this is fine "
                 "if the training data have more",
                 field.name);
    }

    const Field& field_;
    ClassLimits limits_;
    std::vector<std::uint64_t> counts_;
};

/// Exact sums over the pixels of each channel of u8 CHW images.
class PixelTally : public Tally {
  public:
    explicit PixelTally(const Field& field)
        : plane_(field.bytes_per_sample() / static_cast<std::size_t>(field.shape[0])),
          sums_(static_cast<std::size_t>(field.shape[0])) {}

    void add(std::uint64_t, std::span<const std::byte> bytes) override {
        for (std::size_t c = 0; c < sums_.size(); ++c) {
            std::uint64_t sum = 0, squares = 0;
            for (const std::byte pixel : bytes.subspan(c * plane_, plane_)) {
                const auto value = std::to_integer<std::uint64_t>(pixel);
                sum += value;
                squares += value * value;
            }
            sums_[c].sum += sum;
            sums_[c].squares += squares;
        }
    }
    void add(std::span<const std::uint64_t> words) override {
        for (std::size_t c = 0; c < sums_.size(); ++c) {
            sums_[c].sum += words[3 * c];
            sums_[c].squares += Wide{words[3 * c + 1]} << 64 | words[3 * c + 2];
        }
    }
    std::vector<std::uint64_t> words() const override {
        std::vector<std::uint64_t> words;
        for (const Sums& sums : sums_)
            words.insert(words.end(),
                         {sums.sum,
                          static_cast<std::uint64_t>(sums.squares >> 64),
                          static_cast<std::uint64_t>(sums.squares)});
        return words;
    }
    void finish(std::uint64_t samples, Field& field) const override {
        const auto count = static_cast<double>(samples * plane_);
        for (const Sums& sums : sums_) {
            const double mean = static_cast<double>(sums.sum) / count;
            const double variance = static_cast<double>(sums.squares) / count - mean * mean;
            field.mean.push_back(mean / 255);
            field.std.push_back(std::sqrt(std::max(variance, 0.0)) / 255);
        }
    }

  private:
    // Whole numbers, so that neither the order of rows nor the machine changes the result.
    __extension__ using Wide = unsigned __int128;
    struct Sums {
        std::uint64_t sum = 0;
        Wide squares = 0;
    };
    std::size_t plane_;
    std::vector<Sums> sums_;
};

/// Sums of values by statistics_axis(), as differences to those of `first_row`; what is not finite
/// is left out.
template <class Number>
class NumberTally : public Tally {
  public:
    NumberTally(const Field& field, std::span<const std::byte> first_row) {
        const auto axis = statistics_axis(field);
        sums_.resize(axis ? static_cast<std::size_t>(field.shape[*axis]) : 1);
        for (std::size_t i = axis.value_or(field.shape.size()) + 1; i < field.shape.size(); ++i)
            inner_ *= static_cast<std::size_t>(field.shape[i]);
        if (!axis) inner_ = first_row.size() / sizeof(Number);
        values_ = first_row.size() / sizeof(Number);
        for (std::size_t c = 0; c < sums_.size(); ++c)
            if (const double value = value_at(first_row, c * inner_); std::isfinite(value))
                sums_[c].origin = value;
    }

    bool is_exact() const override { return false; }
    void add(std::uint64_t row, std::span<const std::byte> bytes) override {
        for (std::size_t i = 0; i < values_;)
            for (Sums& sums : sums_)
                for (const std::size_t end = i + inner_; i < end; ++i) {
                    const double value = value_at(bytes, i) - sums.origin;
                    if (!std::isfinite(value)) {
                        note(row, i);
                        continue;
                    }
                    ++sums.count;
                    sums.sum += value;
                    sums.squares += value * value;
                }
    }
    void add(std::span<const std::uint64_t> words) override {
        for (std::size_t c = 0; c < sums_.size(); ++c) {
            sums_[c].count += words[3 * c];
            sums_[c].sum += std::bit_cast<double>(words[3 * c + 1]);
            sums_[c].squares += std::bit_cast<double>(words[3 * c + 2]);
        }
        note(words[3 * sums_.size()], words[3 * sums_.size() + 1]);
    }
    std::vector<std::uint64_t> words() const override {
        std::vector<std::uint64_t> words;
        for (const Sums& sums : sums_)
            words.insert(words.end(),
                         {sums.count,
                          std::bit_cast<std::uint64_t>(sums.sum),
                          std::bit_cast<std::uint64_t>(sums.squares)});
        words.insert(words.end(), {bad_row_, bad_element_});
        return words;
    }
    void finish(std::uint64_t samples, Field& field) const override {
        constexpr double unit = std::is_same_v<Number, std::uint8_t> ? 255 : 1;
        std::uint64_t left_out = samples * values_;
        for (const Sums& sums : sums_) {
            left_out -= sums.count;
            const double count = static_cast<double>(std::max<std::uint64_t>(sums.count, 1));
            const double shifted = sums.sum / count;
            const double variance = sums.squares / count - shifted * shifted;
            field.mean.push_back((sums.origin + shifted) / unit);
            field.std.push_back(std::sqrt(std::max(variance, 0.0)) / unit);
        }
        const bool fits =
            std::ranges::all_of(field.mean, [](double x) { return std::isfinite(x); }) &&
            std::ranges::all_of(field.std, [](double x) { return std::isfinite(x); });
        if (!fits) field.mean.clear(), field.std.clear();
        if (left_out > 0)
            once(Level::warn,
                 "{} values of field '{}' are not finite, the first in input sample {}{}; its mean "
                 "and deviation leave them out",
                 grouped(left_out),
                 field.name,
                 grouped(bad_row_),
                 element_text(field, bad_element_));
    }

  private:
    static double value_at(std::span<const std::byte> bytes, std::size_t index) {
        return static_cast<double>(element_at<Number>(bytes, index));
    }
    // ", column 'mass'"; "" of a single number.
    static std::string element_text(const Field& field, std::uint64_t element) {
        if (field.shape.empty()) return "";
        if (element < field.columns.size())
            return fmt::format(", column '{}'", printable(field.columns[element]));
        return fmt::format(", at place {} of [{}]", element, fmt::join(field.shape, ", "));
    }
    void note(std::uint64_t row, std::uint64_t element) {
        if (row >= bad_row_) return;
        bad_row_ = row;
        bad_element_ = element;
    }
    struct Sums {
        double origin = 0, sum = 0, squares = 0;
        std::uint64_t count = 0;
    };
    std::size_t inner_ = 1, values_ = 0;  // consecutive ones of one sum, and all of a row
    std::vector<Sums> sums_;
    std::uint64_t bad_row_ = UINT64_MAX, bad_element_ = 0;  // the first that is not finite
};

constexpr std::uint64_t parts = 256;

using MakeTally = std::function<std::unique_ptr<Tally>()>;

// What makes empty tallies of field number `number`; nothing if it needs none.
MakeTally tallies_of(const RowSource& source, const PackOptions& options, std::size_t number) {
    const Field& field = source.fields()[number];
    const bool is_known = !field.mean.empty() || !field.class_counts.empty();
    if (is_known) return {};
    if (is_of_classes(field)) {
        ClassLimits limits{options.classes, options.class_names};
        for (const auto* names : {&options.class_names, &field.class_names})
            if (limits.expected == 0) limits.expected = std::ssize(*names);
        return [&field, limits] { return std::make_unique<LabelTally>(field, limits); };
    }
    const bool is_image = field.layout == "CHW" && !field.shape.empty();
    if (field.type == ElementType::u8 && is_image)
        return [&field] { return std::make_unique<PixelTally>(field); };
    const bool is_too_wide = field.shape.size() == 1 && !statistics_axis(field);
    if (is_label_name(field.name) || is_too_wide) return {};
    std::vector<std::byte> first_row(field.bytes_per_sample());
    source.read(number, 0, first_row);
    return [&field, first_row] {
        return with_type(field.type, [&](auto zero) -> std::unique_ptr<Tally> {
            return std::make_unique<NumberTally<decltype(zero)>>(field, first_row);
        });
    };
}

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
                    const MakeTally& make_tally,
                    const std::function<void(std::uint64_t)>& report) {
    const auto rank = static_cast<std::uint64_t>(options.team.rank);
    const auto size = static_cast<std::uint64_t>(options.team.size);
    const std::uint64_t first = parts * rank / size, last = parts * (rank + 1) / size;
    const auto row_at = [&](std::uint64_t part) { return source.samples() * part / parts; };
    auto scan = [&](std::uint64_t at, Words& words) {
        const auto tally = make_tally();
        std::vector<std::byte> bytes(source.fields()[number].bytes_per_sample());
        for (std::uint64_t row = row_at(first + at); row < row_at(first + at + 1); ++row) {
            source.read(number, row, bytes);
            tally->add(row, bytes);
        }
        words = tally->words();
    };
    const auto threads = static_cast<std::size_t>(worker_count(options.threads));
    std::vector<decltype(scan)> makers(threads, scan);
    const auto total = make_tally();
    Words all;
    work_in_order<Words>(last - first, makers, [&](std::uint64_t at, const Words& words) {
        if (total->is_exact())
            total->add(words);
        else
            append(all, words);
        report(row_at(first + at + 1) - row_at(first));
    });
    if (total->is_exact()) append(all, total->words());
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
    const std::uint64_t samples = source.samples(), fields = source.fields().size();
    const auto tell = [&](std::uint64_t rows) {
        if (report)
            report({"scan", (number * samples + std::min(rows, samples)) / fields, samples});
    };
    MakeTally make_tally;
    const Words mine = together(team, [&] {
        Words sums;
        make_tally = tallies_of(source, options, number);
        // The other members are about as far as this one.
        if (make_tally)
            sums = sums_of_parts(source, options, number, make_tally, [&](std::uint64_t rows) {
                tell(rows * static_cast<std::uint64_t>(team.size));
            });
        tell(samples);  // may throw, which ends all members
        return sums;
    });
    if (!make_tally) return;
    const auto total = make_tally();
    const std::string bytes(reinterpret_cast<const char*>(mine.data()),
                            mine.size() * sizeof mine[0]);
    for (const std::string& one : gather(team, bytes)) add_parts(one, *total);
    together(team, [&] { total->finish(samples, field); });
}

}  // namespace

std::vector<Field> scan_fields(const RowSource& source,
                               const PackOptions& options,
                               const PackReport& report) {
    std::vector<Field> fields = source.fields();
    for (std::size_t number = 0; number < fields.size(); ++number)
        scan_field(source, options, report, number, fields[number]);
    return fields;
}

}  // namespace lockstep
