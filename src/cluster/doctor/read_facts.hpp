// SPDX-License-Identifier: Apache-2.0
// Parts of read_doctor_facts(), each from files below a root.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

SystemFacts read_system_facts(const FactSource& source, const NodeTopology& node);

/// Returns facts of `path` below `root`; a relative path starts at the working folder.
FolderFacts folder_facts(const std::filesystem::path& root, const std::string& path);

/// Returns the ancestors of this process, nearest first: paths, or names if paths are hidden.
std::vector<std::string> ancestors_of_this(const std::filesystem::path& root);

}  // namespace lockstep
