// SPDX-License-Identifier: Apache-2.0
// Some rows of a field from all over it, in bounded memory and time, and what numbers they hold.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include "transform/image.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Rows of one field, in ascending order, side by side.
struct SampledRows {
    ElementType type = ElementType::u8;
    std::vector<std::int64_t> shape;  ///< of a row
    std::uint64_t rows = 0, of = 0;   ///< how many, of how many
    std::vector<std::byte> bytes;

    std::span<const std::byte> row(std::uint64_t number) const;
};

/// All rows if they take at most 8 MiB; else as many as that from 16 places that are equally far
/// apart, or one from each of fewer if blocks are large. Nothing where reading one would take more
/// than 512 MiB. Errors: those of BlockReader.
std::optional<SampledRows> sample_rows(const std::shared_ptr<const DatasetIndex>& index,
                                       std::size_t field);

/// Of those that are finite; `count` 0: there are none.
struct ValueSummary {
    double least = 0, most = 0, mean = 0;
    std::uint64_t count = 0, not_finite = 0;
    bool are_whole = true;
};

/// Number `i` of rows of any type.
double value_at(ElementType type, std::span<const std::byte> rows, std::size_t i);

ValueSummary summary_of(const SampledRows& sample);

/// Whether each row, of several numbers, has one 1, and 0 elsewhere.
bool is_one_hot(const SampledRows& sample);

/// "0 .. 255, mean 72.9", and how many are not finite.
std::string range_text(const ValueSummary& summary);

/// How often each whole number occurs; nothing of real ones, or where there are over `most`.
std::map<std::int64_t, std::uint64_t> whole_counts(const SampledRows& sample, std::size_t most);

/// How the numbers of a row are an image: `[C, H, W]`, `[H, W, C]`, or `[H, W]`.
enum class PixelOrder { channels_first, channels_last, plane };

/// At most 64 of the rows, eight in a line, each shrunk to at most 96 pixels or enlarged to at
/// least 48, with 2 pixels between them. u8 as they are, other types from the least value, black,
/// to the largest; three channels and more as red, green and blue of the first three, else the
/// first as grey. `sample.shape` has as many dimensions as `order` says.
Image contact_sheet(const SampledRows& sample, PixelOrder order);

/// How many images that shows.
std::uint64_t images_on_sheet(const SampledRows& sample);

}  // namespace lockstep
