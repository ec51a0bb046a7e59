// SPDX-License-Identifier: Apache-2.0
#include "pack_scan.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::int64_t max_classes = 1 << 20;
constexpr std::uint64_t report_every = 4096;

// Whole numbers, so that neither the order of rows nor the machine changes the result.
struct ChannelSums {
    __extension__ using Wide = unsigned __int128;
    std::uint64_t sum = 0;
    Wide squares = 0;
};

void add_pixels(std::span<const std::byte> pixels, ChannelSums& sums) {
    std::uint64_t sum = 0, squares = 0;
    for (const std::byte pixel : pixels) {
        const auto value = std::to_integer<std::uint64_t>(pixel);
        sum += value;
        squares += value * value;
    }
    sums.sum += sum;
    sums.squares += squares;
}

void store_statistics(const std::vector<ChannelSums>& channels, double count, Field& field) {
    for (const ChannelSums& sums : channels) {
        const double mean = static_cast<double>(sums.sum) / count;
        const double variance = static_cast<double>(sums.squares) / count - mean * mean;
        field.mean.push_back(mean / 255);
        field.std.push_back(std::sqrt(std::max(variance, 0.0)) / 255);
    }
}

class Scan {
  public:
    Scan(const RowSource& source, const PackOptions& options, const PackReport& report)
        : source_(source), options_(options), report_(report) {}

    void images(std::size_t number, Field& field) {
        const auto channels = static_cast<std::size_t>(field.shape[0]);
        const std::size_t plane = field.bytes_per_sample() / channels;
        std::vector<ChannelSums> sums(channels);
        std::vector<std::byte> pixels(channels * plane);
        for (std::uint64_t row = 0; row < source_.samples(); ++row) {
            source_.read(number, row, pixels);
            for (std::size_t c = 0; c < channels; ++c)
                add_pixels(std::span(pixels).subspan(c * plane, plane), sums[c]);
            tell(row + 1);
        }
        store_statistics(sums, static_cast<double>(source_.samples() * plane), field);
    }

    void labels(std::size_t number, Field& field) {
        const auto named = static_cast<std::int64_t>(options_.class_names.size());
        const std::int64_t expected = options_.classes > 0 ? options_.classes : named;
        const std::int64_t limit = expected > 0 ? expected : max_classes;
        field.class_counts.assign(static_cast<std::size_t>(expected), 0);
        for (std::uint64_t row = 0; row < source_.samples(); ++row) {
            std::int64_t label = 0;
            source_.read(number, row, std::as_writable_bytes(std::span(&label, 1)));
            if (label < 0 || label >= limit) throw out_of_range(label, row, limit);
            const auto index = static_cast<std::size_t>(label);
            if (index >= field.class_counts.size()) field.class_counts.resize(index + 1);
            ++field.class_counts[index];
        }
        field.class_names = options_.class_names;
    }

  private:
    static Error out_of_range(std::int64_t label, std::uint64_t row, std::int64_t classes) {
        return Error(
            "E210",
            fmt::format("label {} of input sample {} is out of range", label, grouped(row)),
            fmt::format("{} classes have labels 0 to {}", classes, classes - 1),
            "check the labels, or the number of classes given");
    }
    void tell(std::uint64_t done) {
        if (report_ && (done % report_every == 0 || done == source_.samples()))
            report_({"scan", done, source_.samples()});
    }

    const RowSource& source_;
    const PackOptions& options_;
    const PackReport& report_;
};

void check_class_names(const PackOptions& options) {
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

}  // namespace

std::vector<Field> scan_fields(const RowSource& source,
                               const PackOptions& options,
                               const PackReport& report) {
    check_class_names(options);
    std::vector<Field> fields = source.fields();
    Scan scan(source, options, report);
    for (std::size_t number = 0; number < fields.size(); ++number) {
        Field& field = fields[number];
        if (field.type == ElementType::u8 && field.layout == "CHW") scan.images(number, field);
        if (field.type == ElementType::i64 && field.shape.empty()) scan.labels(number, field);
    }
    return fields;
}

}  // namespace lockstep
