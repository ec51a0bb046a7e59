// SPDX-License-Identifier: Apache-2.0
// What to do about a data set that cannot be a field as it is: a command, and only one that works.
#pragma once

#include "lockstep/data/sources.hpp"

#include "hdf5/file_facts.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Files and fields as somebody gave them.
struct AskedFiles {
    std::vector<std::filesystem::path> files;
    std::vector<FieldMapping> fields;
    ImageLayout layout = ImageLayout::unstated;
    Links links = Links::refused;
};

/// What is in the way of packing a data set.
enum class Obstacle {
    elsewhere,  ///< its values lie in other files
    elements,   ///< they are no numbers that a field has
    samples,    ///< it has none, or no dimension that counts them
    library,    ///< libhdf5 does not open it: it is damaged, or newer
};

/// "lockstep data pack --hdf5 a.h5 --field images=/x --out NAME".
std::string pack_command(const AskedFiles& asked, Links links = Links::refused);

/// Whether samples of `shape`, `count` of them in the file, can have the layout that field number
/// `field` states. Errors: E235.
void check_dimensions(const AskedFiles& asked,
                      std::size_t field,
                      const std::filesystem::path& file,
                      std::uint64_t count,
                      const std::vector<std::int64_t>& shape);

/// How field number `field`, which `facts` describe, gets past `obstacle`; looks into the first
/// file for another data set where it cannot.
std::string way_past(Obstacle obstacle,
                     const AskedFiles& asked,
                     std::size_t field,
                     const DatasetFacts& facts);

/// How libhdf5 gets a filter that it lacks, and the command that then works, where one is known.
std::string way_past_filter(std::uint64_t kind, const AskedFiles& asked);

/// Reads the first row of each field of one of the files as open_hdf5() would. Errors: as
/// open_hdf5().
void check_packs_hdf5(const std::filesystem::path& file, const AskedFiles& asked);

}  // namespace lockstep
