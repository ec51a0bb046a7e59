// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/memory.hpp"

#include "support/temp_dir.hpp"

#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

TEST(MemoryUse, IsReadFromTheKernelsFiles) {
    const test::TempDir root;
    root.file("proc/self/status", "VmPeak: 9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n");
    root.file("proc/self/smaps_rollup",
              "55-7f ---p [rollup]\nRss:  9 kB\nPss:   512 kB\n"
              "Pss_Anon:  1 kB\n");
    EXPECT_EQ(memory_use(root.path()).resident_bytes, 1024u << 10);
    EXPECT_EQ(memory_use(root.path()).peak_resident_bytes, 2048u << 10);
    EXPECT_EQ(proportional_memory_bytes(root.path()), 512u << 10);
}

TEST(MemoryUse, IsZeroWhereTheKernelSaysNothing) {
    const test::TempDir root;
    EXPECT_EQ(memory_use(root.path()).resident_bytes, 0u);
    EXPECT_EQ(proportional_memory_bytes(root.path()), 0u);
}

TEST(MemoryUse, GrowsWithTheProcess) {
    constexpr std::size_t bytes = 32u << 20;
    const auto before = memory_use();
    const std::vector<char> block(bytes, 1);
    const auto after = memory_use();
    EXPECT_GT(after.resident_bytes, before.resident_bytes + bytes / 2);
    EXPECT_GE(after.peak_resident_bytes, after.resident_bytes);
    EXPECT_EQ(block.back(), 1);
}

TEST(ResidentBytes, CountsPagesThatWereTouchedAndPartsOfPages) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const at =
        ::mmap(nullptr, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    const std::span memory(static_cast<std::byte*>(at), 16 * page);
    EXPECT_EQ(resident_bytes(memory), 0u);
    for (std::size_t i = 4; i < 7; ++i) memory[i * page] = std::byte{1};
    EXPECT_EQ(resident_bytes(memory), 3 * page);
    EXPECT_EQ(resident_bytes(memory.subspan(4 * page + 100, page)), page);
    EXPECT_EQ(resident_bytes(memory.subspan(6 * page + 100, page)), page - 100);
    EXPECT_EQ(resident_bytes({}), 0u);
    ::munmap(at, memory.size());
}

TEST(Memory, LeavesWhatTheTightestGroupHasNotUsed) {
    test::TempDir root;
    root.file("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
    EXPECT_EQ(memory_left(root.path()), 8000u << 10) << "of the node";
    root.file("proc/self/cgroup", "0::/job/step\n");
    root.file("sys/fs/cgroup/job/memory.max", "4000000\n");
    root.file("sys/fs/cgroup/job/memory.current", "3000000\n");
    root.file("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 500000\nfile 9\n");
    root.file("sys/fs/cgroup/job/step/memory.max", "5000000\n");
    root.file("sys/fs/cgroup/job/step/memory.current", "3000000\n");
    EXPECT_EQ(memory_left(root.path()), 1'500'000u);
}

}  // namespace
}  // namespace lockstep
