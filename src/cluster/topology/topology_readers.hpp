// SPDX-License-Identifier: Apache-2.0
// The parts of read_topology(), each reading one kind of fact below a root, and how they read the
// small files of the kernel in /proc and /sys, where missing ones are empty.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Reads CPUs, cores, caches, sockets and NUMA nodes; only online CPUs. Errors: E222 naming an XML
/// that hwloc cannot read.
void read_processors(const TopologySource& source, NodeTopology& node);

/// Reads display controllers on PCI, and their data in the driver's /proc files.
std::vector<GpuFacts> read_pci_gpus(const std::filesystem::path& root);

/// Adds NVML's facts, matched by PCI address; a line of notes if it cannot be queried.
void add_nvml_facts(const NvmlFunctions* nvml, NodeTopology& node);

std::vector<RdmaPort> read_rdma_ports(const std::filesystem::path& root);

/// Returns true if a PCI switch above a GPU or port of `node` redirects traffic between its devices
/// (ACS); nothing if that part of the configuration space cannot be read.
std::optional<bool> redirects_pci(const std::filesystem::path& root, const NodeTopology& node);

/// Reads interfaces without their addresses.
std::vector<NetworkInterface> read_interfaces(const std::filesystem::path& root);

/// Adds the live system's addresses to the interfaces of the same names.
void add_live_addresses(std::vector<NetworkInterface>& interfaces);

ResourceLimits read_resource_limits(const std::filesystem::path& root);
KernelFacts read_kernel_facts(const std::filesystem::path& root);

/// Returns the value after "key :" or "key:" in a file of such lines; "" if there is none.
std::string value_of(const std::string& text, std::string_view key);

/// Returns directory entries in order of name; none if the directory is missing.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory);

/// Returns the CPU list in `file`; nothing if it is missing, empty or no list.
std::optional<std::vector<int>> cpu_list_in(const std::filesystem::path& file);

/// Returns the whole number in `file`, or `otherwise`.
std::int64_t integer_in(const std::filesystem::path& file, std::int64_t otherwise);

}  // namespace lockstep
