// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

std::vector<BitContract> contracts_of_run_made_with(const fs::path& run, const Json& deciding) {
    RunDirectory::open(run, 0).create({.deciding = deciding});
    return recorded_contracts(run);
}

// Earlier versions could round gradients between ranks.
TEST(RecordedContracts, OfRunsThatSentFp32GoOn) {
    const test::TempDir folder;
    const auto found = contracts_of_run_made_with(
        folder.path() / "run", {{"seed", 1}, {"wire", "f32"}, {"powersgd-rank", 4}});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].deciding, Json({{"seed", 1}}));
}

TEST(RecordedContracts, OfRunsThatRoundedGradientsAreRefused) {
    const test::TempDir folder;
    const std::string text = test::caught_text([&] {
        contracts_of_run_made_with(folder.path() / "run", {{"seed", 1}, {"wire", "bf16"}});
    });
    EXPECT_THAT(text, testing::HasSubstr("error E306: run '"));
    EXPECT_THAT(text, testing::HasSubstr("was made with --wire bf16"));
    EXPECT_THAT(text, testing::HasSubstr("begin another run with its weights: --from "));
}

}  // namespace
}  // namespace lockstep
