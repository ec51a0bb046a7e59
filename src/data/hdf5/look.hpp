// SPDX-License-Identifier: Apache-2.0
// Asks libhdf5 about a file, in this process.
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Opens the file once and answers the request, with the place of each chunk, without reading a
/// sample. Links into other files are followed if the request says so. A damaged file may crash
/// libhdf5: call this only for files that this program wrote or whose hash is right; for others see
/// sandbox.hpp. Errors: E205; E201, E202.
FileFacts look_at_file(const FileRequest& request);

/// Does the same for one data set, which has links within its file only.
DatasetFacts look_at_part(const fs::path& path, const std::string& dataset);

/// Largest length of a list.
inline constexpr std::size_t most_listed = 64;

/// Returns the data sets of a file, by name, in groups of any depth; links into other files are not
/// followed. As dangerous as look_at_file(). Errors: E205; E201, E202.
FileRequest list_datasets(const fs::path& path);

}  // namespace lockstep

namespace lockstep::h5 {

/// The whole data sets, or stretches of external files, that `dataset` with `facts` puts one after
/// the other, in the order of its rows: each with the file it lies in. Empty if it is made in any
/// other way, or if one of them is missing or of another type. Opens what the file names.
std::vector<DatasetFacts> parts_of(const Handle& dataset,
                                   const Handle& properties,
                                   const DatasetFacts& facts);

}  // namespace lockstep::h5
