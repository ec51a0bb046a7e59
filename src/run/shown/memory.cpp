// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/memory.hpp"

#include "lockstep/core/control_group.hpp"

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns the bytes of "VmRSS:     1234 kB" with `key` in `file`; `otherwise` if it has none.
std::uint64_t size_in(const fs::path& file, std::string_view key, std::uint64_t otherwise = 0) {
    std::istringstream words(text_of(file));
    std::uint64_t kib = 0;
    for (std::string word; words >> word;)
        if (word == key && words >> kib) return kib * 1024;
    return otherwise;
}

}  // namespace

void describe(Record& record, ModelBytes& bytes) {
    LOCKSTEP_EACH(record.field, bytes.parameters, bytes.gradients, bytes.state);
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
    const fs::path status = root / "proc/self/status";
    return {.resident_bytes = size_in(status, "VmRSS:"),
            .peak_resident_bytes = size_in(status, "VmHWM:")};
}

std::uint64_t proportional_memory_bytes(const fs::path& root) {
    return size_in(root / "proc/self/smaps_rollup", "Pss:");
}

std::uint64_t memory_left(const fs::path& root) {
    constexpr auto unknown = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t left = size_in(root / "proc/meminfo", "MemAvailable:", unknown);
    return std::min(left, control_group_memory_left(root).value_or(left));
}

}  // namespace lockstep
