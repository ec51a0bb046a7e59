// SPDX-License-Identifier: Apache-2.0
// Open MPI 4 and 5 give the same bits. Runs under tests/support/openmpi5 alone.
#include "program.hpp"

#include <cstdlib>

namespace lockstep::test {
namespace {

constexpr std::int64_t half = 3;  // steps

// Half of each run is trained by one, the rest by the other.
TEST(OpenMpi5, GivesTheBitsOfOpenMpi4AlsoOverAResume) {
    const char* const path = std::getenv("PATH_WITHOUT_OPENMPI5");
    ASSERT_NE(path, nullptr) << "start it by tests/support/openmpi5";
    const Variables old{{"PATH", path}, {"LD_LIBRARY_PATH", ""}};
    EXPECT_THAT(run_lockstep({"version"}), says("Open MPI v5."));
    EXPECT_THAT(run_lockstep({"version"}, old), says("Open MPI v4."));
    const TempDir folder;
    const fs::path run = folder / "run";
    const auto hash_after = [&](int ranks, std::int64_t steps, const Variables& variables) {
        return printed_hash(output_of(
            run_lockstep(train_words(train_data(), run, "mlp", 24) + on_ranks(ranks) +
                             typed("--virtual-ranks 4 --max-steps % --checkpoint-every never",
                                   {std::to_string(steps)}),
                         variables)));
    };
    const std::string expected = hash_after(1, 2 * half, old);
    EXPECT_NE(expected, "");
    for (const int ranks : {1, 3})
        for (const auto& [first, second] : {std::pair{old, Variables()}, {Variables(), old}}) {
            fs::remove_all(run);
            EXPECT_NE(hash_after(ranks, half, first), expected);
            EXPECT_EQ(hash_after(ranks, 2 * half, second), expected) << ranks;
        }
}

}  // namespace
}  // namespace lockstep::test
