// SPDX-License-Identifier: Apache-2.0
// Runs where /dev/shm has 48 MiB.
#include "lockstep/comm/collectives.hpp"
#include "lockstep/comm/exchange.hpp"

#include "collectives/back_ends.hpp"
#include "support/caught.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

constexpr std::size_t too_much = 49 << 20, little = 1 << 20;

/// Buffers of a rank's number; true if their sum comes out right.
bool sums(AllReduce& group, std::byte* memory, std::size_t bytes) {
    auto* numbers = reinterpret_cast<std::int64_t*>(memory);
    const std::size_t count = bytes / sizeof(std::int64_t);
    std::fill_n(numbers, count, ranks().rank());
    group.all_reduce(numbers, count, DataType::int64);
    const std::int64_t sum = ranks().size() * (ranks().size() - 1) / 2;
    return std::count(numbers, numbers + count, sum) == static_cast<std::ptrdiff_t>(count);
}

TEST(NoRoom, IsAnErrorForWhoAsksForSharedMemoryByName) {
    const auto group = make_all_reduce(ranks(), Algorithm::shared_memory);
    EXPECT_EQ(test::caught_code([&] { group->lend(too_much); }), "E632");
    EXPECT_TRUE(sums(*group, group->lend(little), little));
}

/// How often the fix is shown while `action` runs.
template <class Action>
int warnings_of(Action&& action) {
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    action();
    const std::string shown =
        testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout();
    int found = 0;
    for (std::size_t at = 0; (at = shown.find("--shm-size", at)) != shown.npos; ++at) ++found;
    return found;
}

TEST(NoRoom, IsAWarningForOthersWhoGetPrivateMemory) {
    const auto group = make_shared_memory_collectives(ranks(), NoRoom::lends_private_memory);
    std::byte* shared = group->lend(little);
    std::byte *memory = nullptr, *more = nullptr;
    const int warnings = warnings_of([&] {
        memory = group->lend(too_much);
        more = group->lend(too_much);
    });
    EXPECT_EQ(warnings, 1);
    EXPECT_TRUE(sums(*group, shared, little));
    EXPECT_TRUE(sums(*group, memory, too_much));
    EXPECT_TRUE(sums(*group, more + 8, little));
}

TEST(NoRoom, MakesAnExchangeSendMessagesUnlessSharedMemoryIsAskedForByName) {
    const std::vector<std::size_t> counts = {too_much / sizeof(float)};
    const FlatLayout layout(counts, 0);
    const TreePlan plan(4, ranks().size());
    for (const Transport transport : {Transport::shared_memory, Transport::hierarchical})
        EXPECT_EQ(test::caught_code([&] { make_exchange(ranks(), layout, plan, transport); }),
                  "E632");
    std::unique_ptr<Exchange> exchange;
    EXPECT_EQ(warnings_of([&] { exchange = make_exchange(ranks(), layout, plan); }), 1);
    EXPECT_EQ(exchange->name(), "mpi");
}

/// Takes all but 64 KiB of /dev/shm while it lives; made and destroyed by all ranks together.
class FullMemory {
  public:
    FullMemory() {
        if (ranks().is_root()) {
            const auto space = std::filesystem::space("/dev/shm").available - (64 << 10);
            std::ofstream(path_) << std::string(space, 'x');
        }
        ranks().barrier();
    }
    ~FullMemory() {
        ranks().barrier();
        if (ranks().is_root()) std::filesystem::remove(path_);
    }
    FullMemory(const FullMemory&) = delete;
    FullMemory& operator=(const FullMemory&) = delete;

  private:
    const std::filesystem::path path_ = "/dev/shm/lockstep-test-filler";
};

TEST(NoRoom, MakesCollectivesSendMessagesWhenThereIsNoneAtAll) {
    const FullMemory full;
    std::unique_ptr<Collectives> group;
    EXPECT_EQ(warnings_of([&] { group = make_collectives(ranks()); }), 1);
    EXPECT_TRUE(sums(*group, group->lend(little), little));
    EXPECT_EQ(test::caught_code([&] { make_all_reduce(ranks(), Algorithm::shared_memory); }),
              "E632");
}

}  // namespace
