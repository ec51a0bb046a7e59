// SPDX-License-Identifier: Apache-2.0
// Rows of a field from evenly spaced places, read in bounded memory and time, and a summary of
// their numbers.
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

/// Rows of one field, in ascending order, contiguous.
struct SampledRows {
    ElementType type = ElementType::u8;
    std::vector<std::int64_t> shape;  ///< shape of a row
    std::uint64_t rows = 0, of = 0;   ///< number of rows read, and of all rows
    std::vector<std::byte> bytes;

    std::span<const std::byte> row(std::uint64_t number) const;
};

/// Returns all rows if they take at most 8 MiB. Otherwise it reads that much from 16 evenly spaced
/// places, or one row from each of fewer places if blocks are large. Returns nothing if reading one
/// would take more than 512 MiB. Errors: those of BlockReader.
std::optional<SampledRows> sample_rows(const std::shared_ptr<const DatasetIndex>& index,
                                       std::size_t field);

/// A summary of the finite values; `count` 0: there are none.
struct ValueSummary {
    double least = 0, most = 0, mean = 0;
    std::uint64_t count = 0, not_finite = 0;
    bool are_whole = true;
};

/// Returns number `i` of rows of any type.
double value_at(ElementType type, std::span<const std::byte> rows, std::size_t i);

ValueSummary summary_of(const SampledRows& sample);

/// Returns true if each row, of several numbers, has one 1, and 0 elsewhere.
bool is_one_hot(const SampledRows& sample);

/// Returns "0 .. 255, mean 72.9", and the number of values that are not finite.
std::string range_text(const ValueSummary& summary);

/// Returns how often each whole number occurs; nothing for real ones or more than `most`.
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
