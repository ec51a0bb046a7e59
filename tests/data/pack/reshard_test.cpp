// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/check.hpp"
#include "lockstep/data/pack.hpp"

#include "data/fake_team.hpp"
#include "data/samples.hpp"
#include "support/caught.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::caught;
using testing::HasSubstr;
using testing::IsEmpty;

class Reshard : public testing::Test {
  protected:
    void SetUp() override {
        packed_ = test::options_for(folder_, samples_, "in", Codec::lz4);
        packed_.shards = 3;
        packed_.class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
        manifest_ = pack_dataset(packed_).manifest;
        options_.output = folder_ / "out";
        options_.split = "";
        options_.shuffle_seed.reset();
    }
    Manifest reshard(const Team& team = {}, std::uint64_t memory_bytes = 1 << 20) {
        PackOptions options = options_;
        options.team = team;
        return reshard_dataset(test::open_index(packed_.output), options, memory_bytes).manifest;
    }

    test::TempDir folder_;
    test::Samples samples_ = test::make_samples(700);
    PackOptions packed_, options_;
    Manifest manifest_;
};

TEST_F(Reshard, KeepsSamplesAndWhatIsKnownOfThem) {
    options_.codec = Codec::zstd;
    options_.shards = 5;
    options_.block_rows = 24;
    options_.threads = 3;
    const Manifest made = reshard();
    EXPECT_EQ(made.shards.size(), 5u);
    EXPECT_EQ(made.block_rows, 24u);
    EXPECT_EQ(made.row_order, "shuffled:0");
    EXPECT_EQ(made.split, manifest_.split);
    EXPECT_EQ(made.fields, manifest_.fields);
    EXPECT_THAT(verify_dataset(options_.output), IsEmpty());
    EXPECT_EQ(test::read_all(test::open_index(options_.output)),
              test::expected_content(samples_, packed_));
}

TEST_F(Reshard, KeepsTheBlocksByWhichTrainingIsOrdered) {
    options_.block_rows = 0;
    options_.shards = 2;
    EXPECT_EQ(reshard().block_rows, manifest_.block_rows);
}

TEST_F(Reshard, ShufflesAgainInLittleMemoryOnAnyRanks) {
    options_.shuffle_seed = 11;
    options_.shards = 4;
    options_.block_rows = 16;
    const auto before = test::expected_content(samples_, packed_);
    std::map<std::uint64_t, test::Delivered> expected;
    const auto order = test::packed_order(700, options_);
    for (std::uint64_t row = 0; row < 700; ++row) expected[row] = before.at(order[row]);
    const Manifest made = reshard({}, 4000);
    EXPECT_EQ(made.row_order, "shuffled:11");
    EXPECT_EQ(test::read_all(test::open_index(options_.output)), expected);
    EXPECT_FALSE(fs::exists(folder_ / ".out.shuffle.partial"));
    for (const int ranks : {2, 3}) {
        fs::remove_all(options_.output);
        options_.threads = ranks;
        test::run_team(ranks, [&](const Team& team) {
            EXPECT_EQ(reshard(team, 20000 * static_cast<std::uint64_t>(ranks)), made);
        });
    }
}

TEST_F(Reshard, GoesOnAfterAnInterruption) {
    options_.shards = 6;
    options_.block_rows = 16;
    const auto index = test::open_index(packed_.output);
    EXPECT_THROW(reshard_dataset(index,
                                 options_,
                                 1 << 20,
                                 [](const PackProgress& at) {
                                     if (at.stage == "write" && at.done > 400)
                                         throw std::runtime_error("enough");
                                 }),
                 std::runtime_error);
    EXPECT_EQ(reshard_dataset(index, options_, 1 << 20).resumed_shards, 3u);
    EXPECT_EQ(test::read_all(test::open_index(options_.output)),
              test::expected_content(samples_, packed_));
}

TEST_F(Reshard, NamesDamageInItsInput) {
    const auto index = test::open_index(packed_.output);
    const StoredBlock& block = index->stored_blocks(0)[20];
    test::overwrite(packed_.output / manifest_.shards[block.shard].name, block.offset, "damage");
    for (const bool shuffles : {false, true}) {
        if (shuffles) options_.shuffle_seed = 1;
        const auto error = caught([&] { reshard(); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), "E213");
        EXPECT_THAT(error->what(), HasSubstr("field 'images'"));
        EXPECT_FALSE(fs::exists(options_.output));
    }
}

}  // namespace
}  // namespace lockstep
