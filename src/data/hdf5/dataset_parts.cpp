// SPDX-License-Identifier: Apache-2.0
// A virtual data set may take any pieces of any data sets. Users join files with it:
//
//     day-1.h5:/x  [400, 32, 32]  -->  rows   0 to 399   of all.h5:/x  [1000, 32, 32]
//     day-2.h5:/x  [600, 32, 32]  -->  rows 400 to 999
//
// These are blocks of rows like those of any files. All other forms (every second row, tiles, a
// missing part, which libhdf5 fills) are left to the library, by packing.
//
// What must never happen: a part that is not whole counts as whole. So both selections must be
// boxes of as many elements as their bounds have, from the first element to the last, of a data set
// of exactly that size and type.
//
// Tested: data/foreign_matrix (values as h5py's, and what is refused).

#include "look.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>

namespace lockstep::h5 {
namespace {

constexpr std::size_t most_parts = 65536;

/// Indices of a selection's first and last element.
struct Box {
    std::vector<hsize_t> first, last;
};

// Returns nothing if the selection is not all of a box.
std::optional<Box> box_of(const Handle& space) {
    const int rank = H5Sget_simple_extent_ndims(space.id());
    if (rank < 1) return {};
    Box box{std::vector<hsize_t>(static_cast<std::size_t>(rank)), {}};
    box.last = box.first;
    if (H5Sget_select_bounds(space.id(), box.first.data(), box.last.data()) < 0) return {};
    auto left = static_cast<hsize_t>(std::max<hssize_t>(H5Sget_select_npoints(space.id()), 0));
    for (std::size_t d = 0; d < box.first.size(); ++d) {
        const hsize_t along = box.last[d] - box.first[d] + 1;
        if (along == 0 || left % along != 0) return {};
        left /= along;
    }
    return left == 1 ? std::optional(box) : std::nullopt;
}

// Returns true if it has all of dimensions 1, 2, ... of `size`.
bool has_whole_rows(const Box& box, const std::vector<std::uint64_t>& size) {
    if (box.first.size() != size.size()) return false;
    for (std::size_t d = 1; d < size.size(); ++d)
        if (box.first[d] != 0 || box.last[d] + 1 != size[d]) return false;
    return true;
}

// A selection without a size means everything that exists.
bool is_all_of(const Handle& space, const std::vector<std::uint64_t>& size) {
    if (H5Sget_select_type(space.id()) == H5S_SEL_ALL) return true;
    const auto box = box_of(space);
    return box && has_whole_rows(*box, size) && box->first[0] == 0 && box->last[0] + 1 == size[0];
}

fs::path folder_of(const Handle& dataset) {
    return fs::path(file_name(dataset)).parent_path();
}

// The first that is there, as the library looks for it but for prefixes of the environment; empty
// if none is.
std::string first_file(std::initializer_list<fs::path> places) {
    for (const fs::path& place : places)
        if (fs::is_regular_file(place)) return place.string();
    return "";
}

bool has_form_of(const DatasetFacts& part, const DatasetFacts& whole, hsize_t rows) {
    const bool is_stored =
        part.layout == StorageLayout::contiguous || part.layout == StorageLayout::chunked;
    return is_stored && part.type == whole.type && part.number == whole.number &&
           part.members == whole.members && part.type_text == whole.type_text &&
           part.size.size() == whole.size.size() && part.size[0] == rows &&
           std::equal(part.size.begin() + 1, part.size.end(), whole.size.begin() + 1);
}

/// A data set and the row that it begins at.
struct Placed {
    hsize_t row = 0;
    DatasetFacts facts;
};

// The data set of one mapping; nothing if it is not whole rows of one.
std::optional<Placed> mapped(const Handle& dataset,
                             const Handle& properties,
                             std::size_t number,
                             const DatasetFacts& whole) {
    std::array<char, 4096> file{}, name{};
    H5Pget_virtual_filename(properties.id(), number, file.data(), file.size() - 1);
    H5Pget_virtual_dsetname(properties.id(), number, name.data(), name.size() - 1);
    const auto to = box_of({H5Pget_virtual_vspace(properties.id(), number), H5Sclose});
    if (!to || !has_whole_rows(*to, whole.size)) return {};
    const bool is_within = std::string_view(file.data()) == ".";
    const std::string path = is_within
                                 ? file_name(dataset)
                                 : first_file({folder_of(dataset) / file.data(), file.data()});
    if (path.empty()) return {};
    Placed placed{to->first[0], look_at_part(path, name.data())};
    const hsize_t rows = to->last[0] - to->first[0] + 1;
    const Handle from(H5Pget_virtual_srcspace(properties.id(), number), H5Sclose);
    if (!has_form_of(placed.facts, whole, rows) || !is_all_of(from, placed.facts.size)) return {};
    placed.facts.file = is_within ? whole.file : path;
    return placed;
}

std::vector<DatasetFacts> joined(const Handle& dataset,
                                 const Handle& properties,
                                 const DatasetFacts& whole) {
    std::size_t count = 0;
    if (H5Pget_virtual_count(properties.id(), &count) < 0 || count > most_parts) return {};
    std::vector<Placed> placed;
    for (std::size_t i = 0; i < count; ++i) {
        auto part = mapped(dataset, properties, i, whole);
        if (!part) return {};
        placed.push_back(std::move(*part));
    }
    std::ranges::sort(placed, {}, &Placed::row);
    hsize_t reached = 0;
    std::vector<DatasetFacts> parts;
    for (Placed& part : placed) {
        if (part.row != reached) return {};
        reached += part.facts.size[0];
        parts.push_back(std::move(part.facts));
    }
    return reached == whole.size[0] ? parts : std::vector<DatasetFacts>{};
}

// Stretches of bytes, which are to end with rows.
std::vector<DatasetFacts> stretches(const Handle& dataset,
                                    const Handle& properties,
                                    const DatasetFacts& whole) {
    const Handle type(H5Dget_type(dataset.id()), H5Tclose);
    hsize_t row_bytes = H5Tget_size(type.id()), left = whole.size[0];
    for (std::size_t d = 1; d < whole.size.size(); ++d) row_bytes *= whole.size[d];
    const int count = H5Pget_external_count(properties.id());
    std::vector<DatasetFacts> parts;
    for (int i = 0; i < count && left > 0 && row_bytes > 0; ++i) {
        std::array<char, 4096> name{};
        off_t offset = 0;
        hsize_t bytes = 0;
        H5Pget_external(properties.id(),
                        static_cast<unsigned>(i),
                        name.size() - 1,
                        name.data(),
                        &offset,
                        &bytes);
        const hsize_t rows = std::min<hsize_t>(bytes / row_bytes, left);
        if (rows < left && bytes % row_bytes != 0) return {};
        DatasetFacts part = whole;
        part.layout = StorageLayout::contiguous;
        part.file = first_file({name.data(), folder_of(dataset) / name.data()});
        part.offset = static_cast<std::uint64_t>(offset);
        part.size[0] = rows;
        if (part.file.empty()) return {};
        if (rows > 0) parts.push_back(std::move(part));
        left -= rows;
    }
    return left == 0 ? parts : std::vector<DatasetFacts>{};
}

}  // namespace

std::vector<DatasetFacts> parts_of(const Handle& dataset,
                                   const Handle& properties,
                                   const DatasetFacts& facts) {
    if (facts.size.empty() || facts.is_text) return {};
    return H5Pget_layout(properties.id()) == H5D_VIRTUAL ? joined(dataset, properties, facts)
                                                         : stretches(dataset, properties, facts);
}

}  // namespace lockstep::h5
