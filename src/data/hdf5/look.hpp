// SPDX-License-Identifier: Apache-2.0
// Asks libhdf5 about a file, in this process.
#pragma once

#include "file_facts.hpp"

#include <cstddef>

namespace lockstep {

/// Opens the file once and finds out what is asked, down to where each chunk lies, without reading
/// a sample. Links into other files are followed if the request says so. libhdf5 must survive the
/// file: call this for what this program wrote or whose hash is right, else see sandbox.hpp.
/// Errors: E205; E201, E202.
FileFacts look_at_file(const FileRequest& request);

/// The same of one data set, which has links within its file only.
DatasetFacts look_at_part(const std::filesystem::path& path, const std::string& dataset);

/// No list has more.
inline constexpr std::size_t most_listed = 64;

/// The data sets of a file, by name, in groups of any depth; links into other files are not
/// followed. As dangerous as look_at_file(). Errors: E205; E201, E202.
FileRequest list_datasets(const std::filesystem::path& path);

}  // namespace lockstep
