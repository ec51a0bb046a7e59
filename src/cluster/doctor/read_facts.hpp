// SPDX-License-Identifier: Apache-2.0
// Parts of read_doctor_facts(), each from files below a root.
#pragma once

#include "lockstep/cluster/doctor_facts.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

SystemFacts read_system_facts(const FactSource& source, const NodeTopology& node);

/// `path` below `root`; a relative one is taken from the working folder.
FolderFacts folder_facts(const std::filesystem::path& root, const std::string& path);

/// Files in /dev/shm that MPI, NCCL or LibTorch left: this user's, older than an hour, mapped by
/// none of the user's processes.
std::vector<std::string> stale_shared_files(const std::filesystem::path& root);

/// Programs above this process, nearest first: paths, or bare names where the system hides paths.
std::vector<std::string> ancestors_of_this(const std::filesystem::path& root);

/// Whether a PCI switch above one of `devices` redirects traffic between its devices (ACS);
/// nothing where the configuration space cannot be read that far.
std::optional<bool> redirects_pci(const std::filesystem::path& root,
                                  const std::vector<PciPlace>& devices);

}  // namespace lockstep
