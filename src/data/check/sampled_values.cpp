// SPDX-License-Identifier: Apache-2.0
// Rows of a field from evenly spaced places, read in bounded memory and time, a summary of their
// numbers, and a sheet of their images. Tested: data/check/inspect_test.cpp
#include "lockstep/core/numbers.hpp"

#include "format/labels.hpp"
#include "inspection.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{8} << 20;
constexpr std::uint64_t large_block = std::uint64_t{8} << 20;
constexpr std::uint64_t most_buffer_bytes = std::uint64_t{512} << 20;

// Returns the decoded size of the largest block; all tiles of one band count together.
std::uint64_t largest_block(const DatasetIndex& index, std::size_t field) {
    std::uint64_t largest = 0;
    for (const StoredBlock& block : index.stored_blocks(field)) {
        const Cut* cut = index.cut_of(block);
        largest = std::max(largest, block.decoded_bytes * (cut ? cut->tiles() : 1));
    }
    return largest;
}

std::string number_text(double value) {
    constexpr double exact = 1e15;
    if (value == std::floor(value) && std::abs(value) < exact)
        return fmt::format("{:.0f}", value == 0 ? 0 : value);
    return fmt::format("{:.4g}", value);
}

constexpr std::uint64_t most_images = 64, in_line = 8;
constexpr std::uint32_t largest_side = 96, least_side = 48, gap = 2;
constexpr std::uint8_t background = 40;

// Where the value of a pixel lies in a row.
struct Plan {
    std::size_t channels = 1, height = 1, width = 1;
    std::size_t channel_step = 0, line_step = 1, pixel_step = 1;
};

Plan plan_of(const std::vector<std::int64_t>& shape, PixelOrder order) {
    const auto at = [&](std::size_t i) { return static_cast<std::size_t>(shape.at(i)); };
    if (order == PixelOrder::channels_first) return {at(0), at(1), at(2), at(1) * at(2), at(2), 1};
    if (order == PixelOrder::channels_last) return {at(2), at(0), at(1), 1, at(1) * at(2), at(2)};
    return {1, at(0), at(1), 0, at(1), 1};
}

// From what is black and what is white.
auto shades_of(const SampledRows& sample) {
    double least = 0, scale = 1;
    if (sample.type != ElementType::u8) {
        const ValueSummary summary = summary_of(sample);
        least = summary.least;
        scale = summary.most > least ? 255 / (summary.most - least) : 0;
    }
    return [=](double value) -> std::uint8_t {
        if (!std::isfinite(value)) return 0;
        return static_cast<std::uint8_t>(std::clamp((value - least) * scale + 0.5, 0.0, 255.0));
    };
}

template <class Shade>
Image image_of(const SampledRows& sample,
               std::uint64_t row,
               const Plan& plan,
               const Shade& shade_of) {
    const std::size_t shown = plan.channels >= 3 ? 3 : 1;
    Image image{static_cast<std::uint32_t>(plan.height),
                static_cast<std::uint32_t>(plan.width),
                static_cast<std::uint32_t>(shown),
                {}};
    image.pixels.reserve(plan.height * plan.width * shown);
    const std::span<const std::byte> values = sample.row(row);
    for (std::size_t y = 0; y < plan.height; ++y)
        for (std::size_t x = 0; x < plan.width; ++x)
            for (std::size_t c = 0; c < shown; ++c) {
                const std::size_t place =
                    c * plan.channel_step + y * plan.line_step + x * plan.pixel_step;
                image.pixels.push_back(shade_of(value_at(sample.type, values, place)));
            }
    return image;
}

// Each pixel `factor` times in both directions.
Image enlarged(const Image& image, std::uint32_t factor) {
    Image out{image.height * factor, image.width * factor, image.channels, {}};
    out.pixels.reserve(out.height * out.row_bytes());
    for (std::uint32_t y = 0; y < out.height; ++y)
        for (std::uint32_t x = 0; x < out.width; ++x)
            for (std::uint32_t c = 0; c < image.channels; ++c)
                out.pixels.push_back(image.pixels[(y / factor) * image.row_bytes() +
                                                  (x / factor) * image.channels + c]);
    return out;
}

Image as_tile(const Image& image) {
    const std::uint32_t longest = std::max(image.height, image.width);
    if (longest < least_side) return enlarged(image, (least_side + longest - 1) / longest);
    if (longest <= largest_side) return image;
    const auto shrunk = [&](std::uint32_t side) {
        return std::max<std::uint32_t>(
            static_cast<std::uint32_t>(std::uint64_t{side} * largest_side / longest), 1);
    };
    return resized(image, shrunk(image.height), shrunk(image.width));
}

void put(const Image& tile, Image& sheet, std::uint64_t top, std::uint64_t left) {
    for (std::uint32_t y = 0; y < tile.height; ++y)
        std::copy_n(tile.pixels.begin() + static_cast<std::ptrdiff_t>(y * tile.row_bytes()),
                    tile.row_bytes(),
                    sheet.pixels.begin() +
                        static_cast<std::ptrdiff_t>((top + y) * sheet.row_bytes() + left * 3));
}

}  // namespace

std::span<const std::byte> SampledRows::row(std::uint64_t number) const {
    const std::size_t row_bytes = bytes.size() / rows;
    return std::span(bytes).subspan(number * row_bytes, row_bytes);
}

std::optional<SampledRows> sample_rows(const std::shared_ptr<const DatasetIndex>& index,
                                       std::size_t field) {
    const Field& described = index->fields()[field];
    const std::uint64_t row_bytes = described.bytes_per_sample();
    const std::uint64_t block_bytes = largest_block(*index, field);
    if (std::max(row_bytes, block_bytes) > most_buffer_bytes) return {};
    const std::uint64_t all = index->samples();
    std::uint64_t places = 1, rows = all;  // at each
    if (all * row_bytes > most_bytes) {
        places = std::min<std::uint64_t>(all, block_bytes > large_block ? 4 : 16);
        rows = std::clamp<std::uint64_t>(most_bytes / places / row_bytes, 1, all / places);
    }
    SampledRows sample{
        .type = described.type, .shape = described.shape, .rows = places * rows, .of = all};
    sample.bytes.resize(sample.rows * row_bytes);
    ShardFiles files(index, Access::scattered);
    BlockReader reader(files, field);
    for (std::uint64_t i = 0; i < places; ++i)
        reader.read_rows(field,
                         i * all / places,
                         rows,
                         std::span(sample.bytes).subspan(i * rows * row_bytes, rows * row_bytes));
    return sample;
}

double value_at(ElementType type, std::span<const std::byte> rows, std::size_t i) {
    return with_type(type, [&]<class T>(T) { return static_cast<double>(element_at<T>(rows, i)); });
}

ValueSummary summary_of(const SampledRows& sample) {
    ValueSummary summary;
    const std::size_t values = sample.bytes.size() / element_bytes(sample.type);
    double sum = 0;
    for (std::size_t i = 0; i < values; ++i) {
        const double value = value_at(sample.type, sample.bytes, i);
        if (!std::isfinite(value)) {
            ++summary.not_finite;
            continue;
        }
        summary.least = summary.count == 0 ? value : std::min(summary.least, value);
        summary.most = summary.count == 0 ? value : std::max(summary.most, value);
        ++summary.count;
        summary.are_whole = summary.are_whole && value == std::floor(value);
        sum += value;
    }
    if (summary.count > 0) summary.mean = sum / static_cast<double>(summary.count);
    return summary;
}

bool is_one_hot(const SampledRows& sample) {
    if (sample.shape.size() != 1 || sample.shape[0] < 2) return false;
    const auto places = static_cast<std::size_t>(sample.shape[0]);
    for (std::uint64_t row = 0; row < sample.rows; ++row) {
        std::size_t ones = 0, zeros = 0;
        for (std::size_t i = 0; i < places; ++i) {
            const double value = value_at(sample.type, sample.row(row), i);
            ones += value == 1 ? 1 : 0;
            zeros += value == 0 ? 1 : 0;
        }
        if (ones != 1 || zeros != places - 1) return false;
    }
    return sample.rows > 0;
}

std::string range_text(const ValueSummary& summary) {
    std::string text = summary.count == 0 ? "no finite number"
                                          : fmt::format("{} .. {}, mean {}",
                                                        number_text(summary.least),
                                                        number_text(summary.most),
                                                        number_text(summary.mean));
    if (summary.not_finite > 0) text += fmt::format(", {} not finite", grouped(summary.not_finite));
    return text;
}

std::map<std::int64_t, std::uint64_t> whole_counts(const SampledRows& sample, std::size_t most) {
    std::map<std::int64_t, std::uint64_t> counts;
    if (!is_whole(sample.type)) return counts;
    for (std::size_t i = 0; i < sample.bytes.size() / element_bytes(sample.type); ++i) {
        ++counts[label_at(sample.type, sample.bytes, i)];
        if (counts.size() > most) return {};
    }
    return counts;
}

std::uint64_t images_on_sheet(const SampledRows& sample) {
    return std::min(sample.rows, most_images);
}

Image contact_sheet(const SampledRows& sample, PixelOrder order) {
    const Plan plan = plan_of(sample.shape, order);
    const auto shade_of = shades_of(sample);
    std::vector<Image> tiles;
    const std::uint64_t count = images_on_sheet(sample);
    for (std::uint64_t i = 0; i < count; ++i)
        tiles.push_back(
            with_channels(as_tile(image_of(sample, i * sample.rows / count, plan, shade_of)), 3));
    const std::uint64_t columns = std::min(count, in_line), lines = (count - 1) / in_line + 1;
    const std::uint64_t height = tiles[0].height + gap, width = tiles[0].width + gap;
    Image sheet{static_cast<std::uint32_t>(lines * height + gap),
                static_cast<std::uint32_t>(columns * width + gap),
                3,
                {}};
    sheet.pixels.assign(sheet.height * sheet.row_bytes(), background);
    for (std::uint64_t i = 0; i < count; ++i)
        put(tiles[i], sheet, gap + i / in_line * height, gap + i % in_line * width);
    return sheet;
}

}  // namespace lockstep
