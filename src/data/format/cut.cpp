// SPDX-License-Identifier: Apache-2.0
// A tile is copied from a chunk to its samples run by run: a run is contiguous in both. h5py's own
// chunks have runs of a few bytes, so the code is compiled for those sizes separately.
//
//     axes     rows, y       how far it is to the next run in the chunk and in the samples
//     run      x             bytes
//
// Tested: data/format/unpacking_test.cpp (against numpy's order of elements, worked out one by
// one).

#include "lockstep/data/dataset_index.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

struct Axis {
    std::uint64_t count = 1, from = 0, to = 0;  ///< steps in bytes
};

// The elements to copy, from the outermost axis to the innermost.
struct Box {
    std::vector<Axis> axes;
    std::uint64_t run = 0, to = 0;  ///< bytes; where it begins in the samples
};

// Forwards, so that a chunk may be moved to its own front.
template <std::size_t known>
void copy_plane(
    const std::byte* from, std::byte* to, const Axis& lines, const Axis& runs, std::size_t run) {
    const std::size_t bytes = known > 0 ? known : run;
    for (std::uint64_t line = 0; line < lines.count; ++line) {
        const std::byte* source = from + line * lines.from;
        std::byte* place = to + line * lines.to;
        for (std::uint64_t i = 0; i < runs.count; ++i, source += runs.from, place += runs.to)
            std::memmove(place, source, bytes);
    }
}

using CopyPlane = void (*)(const std::byte*, std::byte*, const Axis&, const Axis&, std::size_t run);

// Runs of 1, 2, 4, 8 and 16 bytes are copied without a call.
CopyPlane plane_copier(std::uint64_t run) {
    constexpr CopyPlane copiers[] = {
        copy_plane<1>, copy_plane<2>, copy_plane<4>, copy_plane<8>, copy_plane<16>};
    const bool is_known = std::has_single_bit(run) && run <= 16;
    return is_known ? copiers[std::countr_zero(run)] : copy_plane<0>;
}

void copy_axes(const std::byte* from,
               std::byte* to,
               std::span<const Axis> axes,
               std::uint64_t run,
               CopyPlane copy) {
    if (axes.size() == 2) return copy(from, to, axes[0], axes[1], run);
    for (std::uint64_t i = 0; i < axes[0].count; ++i)
        copy_axes(from + i * axes[0].from, to + i * axes[0].to, axes.subspan(1), run, copy);
}

void copy_box(const Box& box, const std::byte* from, std::byte* to) {
    copy_axes(from, to + box.to, box.axes, box.run, plane_copier(box.run));
}

std::uint64_t product(std::span<const std::uint64_t> sizes) {
    std::uint64_t all = 1;
    for (const std::uint64_t size : sizes) all *= size;
    return all;
}

// The begin of a tile in the sample and its size in each dimension.
struct TilePlace {
    std::vector<std::uint64_t> begin, size;
};

TilePlace place_of(const Cut& cut, std::uint64_t tile) {
    TilePlace place{cut.sample, cut.sample};
    for (std::size_t d = cut.sample.size(); d-- > 0;) {
        const std::uint64_t along = (cut.sample[d] - 1) / cut.chunk[d] + 1;
        place.begin[d] = tile % along * cut.chunk[d];
        place.size[d] = std::min(cut.chunk[d], cut.sample[d] - place.begin[d]);
        tile /= along;
    }
    return place;
}

// Runs grow over dimensions that are whole in both.
Box box_of(std::uint64_t rows,
           std::span<const std::uint64_t> size,
           std::span<const std::uint64_t> from,
           std::span<const std::uint64_t> to,
           std::size_t element_bytes) {
    Box box{.run = element_bytes};
    std::uint64_t from_step = element_bytes, to_step = element_bytes;
    for (std::size_t d = size.size(); d-- > 0;) {
        if (box.axes.empty() && from_step == box.run && to_step == box.run)
            box.run *= size[d];
        else
            box.axes.insert(box.axes.begin(), {size[d], from_step, to_step});
        from_step *= from[d];
        to_step *= to[d];
    }
    box.axes.insert(box.axes.begin(), {rows, from_step, to_step});
    std::erase_if(box.axes, [](const Axis& axis) { return axis.count == 1; });
    while (box.axes.size() < 2) box.axes.insert(box.axes.begin(), Axis{});
    return box;
}

}  // namespace

std::uint64_t Cut::tiles() const {
    std::uint64_t count = 1;
    for (std::size_t d = 0; d < sample.size(); ++d) count *= (sample[d] - 1) / chunk[d] + 1;
    return count;
}

std::uint64_t Cut::chunk_elements() const {
    return product(chunk);
}

std::uint64_t Cut::elements_of(std::uint64_t tile) const {
    return product(place_of(*this, tile).size);
}

bool Cut::is_sound() const {
    constexpr std::uint64_t most = std::uint64_t{1} << 40;
    if (sample.empty() || chunk.size() != sample.size()) return false;
    for (const auto* sizes : {&sample, &chunk}) {
        std::uint64_t all = 1;
        for (const std::uint64_t size : *sizes) {
            if (size < 1 || size > most / all) return false;
            all *= size;
        }
    }
    return true;
}

std::span<std::byte> without_padding(const Cut& cut,
                                     std::uint64_t tile,
                                     std::size_t element_bytes,
                                     std::uint64_t rows,
                                     std::span<std::byte> chunk) {
    const TilePlace place = place_of(cut, tile);
    if (place.size != cut.chunk)
        copy_box(box_of(rows, place.size, cut.chunk, place.size, element_bytes),
                 chunk.data(),
                 chunk.data());
    return chunk.first(rows * product(place.size) * element_bytes);
}

void put_tile(const Cut& cut,
              std::uint64_t tile,
              std::size_t element_bytes,
              std::span<const std::byte> values,
              std::span<std::byte> samples) {
    const TilePlace place = place_of(cut, tile);
    const std::uint64_t rows = samples.size() / (product(cut.sample) * element_bytes);
    Box box = box_of(rows, place.size, place.size, cut.sample, element_bytes);
    std::uint64_t step = element_bytes;
    for (std::size_t d = cut.sample.size(); d-- > 0; step *= cut.sample[d])
        box.to += place.begin[d] * step;
    copy_box(box, values.data(), samples.data());
}

}  // namespace lockstep
