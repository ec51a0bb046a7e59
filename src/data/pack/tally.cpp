// SPDX-License-Identifier: Apache-2.0
#include "tally.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/class_use.hpp"

#include "format/labels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

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
    // Checks the classes that were counted: a user who gave their number knows of the others.
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

template <class Real>
class RealTally : public Tally {
  public:
    RealTally(const Field& field, std::span<const std::byte> first_row) {
        const std::size_t values = first_row.size() / sizeof(Real);
        const bool has_planes = field.layout == "CHW" || field.shape.size() == 1;
        sums_.resize(has_planes ? static_cast<std::size_t>(field.shape[0]) : 1);
        plane_ = values / sums_.size();
        for (std::size_t c = 0; c < sums_.size(); ++c)
            if (const double value = value_at(first_row, c * plane_); std::isfinite(value))
                sums_[c].origin = value;
    }

    void add(std::uint64_t row, std::span<const std::byte> bytes) override {
        for (std::size_t c = 0; c < sums_.size(); ++c)
            for (std::size_t i = c * plane_; i < (c + 1) * plane_; ++i) {
                const double value = value_at(bytes, i) - sums_[c].origin;
                if (!std::isfinite(value)) {
                    note(row, i);
                    continue;
                }
                ++sums_[c].count;
                sums_[c].sum += value;
                sums_[c].squares += value * value;
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
        std::uint64_t left_out = 0;
        for (const Sums& sums : sums_) {
            left_out += samples * plane_ - sums.count;
            const double count = static_cast<double>(std::max<std::uint64_t>(sums.count, 1));
            const double shifted = sums.sum / count;
            const double variance = sums.squares / count - shifted * shifted;
            field.mean.push_back(sums.origin + shifted);
            field.std.push_back(std::sqrt(std::max(variance, 0.0)));
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
        Real value = 0;
        std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
        return static_cast<double>(value);
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
    std::size_t plane_ = 1;
    std::vector<Sums> sums_;
    std::uint64_t bad_row_ = UINT64_MAX, bad_element_ = 0;  // the first that is not finite
};

}  // namespace

std::unique_ptr<Tally> label_tally(const Field& field, const ClassLimits& limits) {
    return std::make_unique<LabelTally>(field, limits);
}

std::unique_ptr<Tally> pixel_tally(const Field& field) {
    return std::make_unique<PixelTally>(field);
}

std::unique_ptr<Tally> real_tally(const Field& field, std::span<const std::byte> first_row) {
    if (field.type == ElementType::f32) return std::make_unique<RealTally<float>>(field, first_row);
    return std::make_unique<RealTally<double>>(field, first_row);
}

}  // namespace lockstep
