// SPDX-License-Identifier: Apache-2.0
// Runs where /dev/shm has 48 MiB.
#include "lockstep/comm/exchange.hpp"

#include "support/mpi_test.hpp"
#include "support/unit.hpp"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

constexpr std::size_t too_much = 49 << 20, little = 1 << 20;

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

TEST(NoRoom, MakesAnExchangeSendMessagesUnlessSharedMemoryIsAskedForByName) {
    const std::vector<std::size_t> counts = {too_much / sizeof(float)};
    const FlatLayout layout(counts, 0);
    const TreePlan plan(4, ranks().size());
    for (const Transport transport : {Transport::shared_memory, Transport::hierarchical})
        EXPECT_EQ(caught_code([&] { make_exchange(ranks(), layout, plan, transport); }), "E632");
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

TEST(NoRoom, MakesAnExchangeSendMessagesWhenThereIsNoneAtAll) {
    const FullMemory full;
    const std::vector<std::size_t> counts = {little / sizeof(float)};
    const FlatLayout layout(counts, 0);
    std::unique_ptr<Exchange> exchange;
    EXPECT_EQ(warnings_of(
                  [&] { exchange = make_exchange(ranks(), layout, TreePlan(4, ranks().size())); }),
              1);
    EXPECT_EQ(exchange->name(), "mpi");
}

}  // namespace
