// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/memory.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns the bytes of "VmRSS:     1234 kB" if `line` begins with `key`; otherwise `otherwise`.
std::uint64_t value_in(std::string_view line, std::string_view key, std::uint64_t otherwise) {
    if (!line.starts_with(key)) return otherwise;
    line.remove_prefix(key.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const auto kib = parse_integer(line.substr(0, line.find(' ')));
    return kib && *kib >= 0 ? static_cast<std::uint64_t>(*kib) * 1024 : otherwise;
}

}  // namespace

void describe(Record& record, ModelBytes& bytes) {
    record.field("parameters", bytes.parameters);
    record.field("gradients", bytes.gradients);
    record.field("state", bytes.state);
}

std::uint64_t resident_bytes(std::span<const std::byte> memory) {
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data()), end = begin + memory.size();
    const std::uintptr_t first = begin / page * page;
    std::vector<unsigned char> present((end - first + page - 1) / page);
    const auto at = reinterpret_cast<void*>(first);
    if (memory.empty() || ::mincore(at, present.size() * page, present.data()) != 0)
        return memory.size();
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < present.size(); ++i) {
        const std::uintptr_t here = first + i * page;
        if ((present[i] & 1) != 0) bytes += std::min(end, here + page) - std::max(begin, here);
    }
    return bytes;
}

MemoryUse memory_use(const fs::path& root) {
    std::ifstream status(root / "proc/self/status");
    MemoryUse use;
    for (std::string line; std::getline(status, line);) {
        use.resident_bytes = value_in(line, "VmRSS:", use.resident_bytes);
        use.peak_resident_bytes = value_in(line, "VmHWM:", use.peak_resident_bytes);
    }
    return use;
}

std::uint64_t proportional_memory_bytes(const fs::path& root) {
    std::ifstream rollup(root / "proc/self/smaps_rollup");
    std::uint64_t bytes = 0;
    for (std::string line; std::getline(rollup, line);) bytes = value_in(line, "Pss:", bytes);
    return bytes;
}

std::uint64_t memory_left(const fs::path& root) {
    std::ifstream node(root / "proc/meminfo");
    std::uint64_t left = std::numeric_limits<std::uint64_t>::max();
    for (std::string line; std::getline(node, line);) left = value_in(line, "MemAvailable:", left);
    return std::min(left, control_group_memory_left(root).value_or(left));
}

}  // namespace lockstep
