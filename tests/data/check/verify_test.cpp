// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/check.hpp"

#include "check/segments.hpp"
#include "data/fake_team.hpp"
#include "data/foreign_files.hpp"
#include "data/stream/packed_samples.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

std::vector<std::string> texts(const std::vector<Finding>& found) {
    std::vector<std::string> all;
    for (const Finding& finding : found) all.push_back(finding.text);
    return all;
}

class Verify : public test::PackedByCodec {
  protected:
    Verify() : PackedByCodec(2, test::make_samples(300)) {}
    std::vector<Finding> findings() const { return verify_dataset(options_.output); }
};

TEST_P(Verify, FindsAFlippedBitAnywhere) {
    std::vector<fs::path> files{options_.output / manifest_name, shard(0), shard(1)};
    CounterRandom random(Purpose::test, {42});
    for (int i = 0; i < 100; ++i) {
        const fs::path& file = files[random.below(files.size())];
        const std::uint64_t offset = random.below(fs::file_size(file));
        const char before = content_of(file)[offset];
        const char flipped = static_cast<char>(before ^ (1 << random.below(8)));
        test::overwrite(file, offset, std::string(1, flipped));
        const auto found = findings();
        EXPECT_THAT(found, Not(IsEmpty())) << file << " at " << offset;
        EXPECT_EQ(found.empty() ? "" : found[0].file, file.filename());
        test::overwrite(file, offset, std::string(1, before));
    }
    EXPECT_THAT(findings(), IsEmpty());
}

TEST_P(Verify, NamesFieldBlockAndOffset) {
    const auto index = test::open_index(options_.output);
    const StoredBlock& block = index->stored_blocks(1)[13];
    ASSERT_EQ(block.shard, 1u);
    test::overwrite(shard(1), block.offset, "\xff\xff");
    const auto found = findings();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].code, "E213");
    EXPECT_EQ(found[0].field, "labels");
    EXPECT_EQ(found[0].offset, block.offset);
    EXPECT_EQ(found[0].bytes, block.stored_bytes);
    const auto in_shard = static_cast<std::int64_t>(13 - manifest_.shards[1].first_sample / 16);
    EXPECT_EQ(found[0].block, in_shard);
    EXPECT_THAT(found[0].text, HasSubstr("'labels'"));
}

TEST_P(Verify, TellsDamageToTheIndexAndToHdf5FromDamageToSamples) {
    test::overwrite(shard(0), manifest_.shards[0].index[0].offset + 3, "x");
    auto found = findings();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_THAT(found[0].text, HasSubstr("index of field 'images'"));
    pack_again();
    test::overwrite(shard(0), 20, "\x55");
    found = findings();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_THAT(found[0].text, HasSubstr("outside of its blocks"));
}

TEST_P(Verify, FindsWrongSizesAndMissingShards) {
    fs::resize_file(shard(0), manifest_.shards[0].bytes - 1);
    auto found = findings();
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].code, "E204");
    fs::resize_file(shard(0), 0);
    EXPECT_EQ(findings().at(0).code, "E204");
    fs::remove(shard(0));
    EXPECT_EQ(findings().at(0).code, "E201");
    pack_again();
    std::ofstream(shard(1), std::ios::app) << "more";
    EXPECT_EQ(findings().at(0).code, "E213");
}

TEST_P(Verify, FindsPathsThatLeaveTheFolder) {
    test::rewrite_manifest(options_.output, [](Json& json) { json["shards"][0]["path"] = "../x"; });
    EXPECT_EQ(findings().at(0).code, "E220");
}

TEST_P(Verify, FindsBlocksThatCannotBeWithoutMakingRoomForThem) {
    test::rewrite_manifest(options_.output, [](Json& json) {
        json["fields"][0]["shape"] = {1, 4096, 3000};
    });
    const auto found = findings();
    ASSERT_FALSE(found.empty());
    if (GetParam() == Codec::none)
        EXPECT_EQ(found[0].code, "E222");
    else
        EXPECT_THAT(found[0].text, HasSubstr("impossible blocks"));
}

TEST_P(Verify, ThrowsWhereThereIsNoDataSetOnAllRanksAlike) {
    EXPECT_EQ(caught_code([&] { verify_dataset(folder_ / "none"); }), "E201");
    EXPECT_EQ(caught_code([&] { verify_dataset(folder_.path()); }), "E216");
    const auto failures = test::run_team(2, [&](const Team& team) {
        verify_dataset(folder_ / "none", {}, {1, team});
    });
    EXPECT_THAT(test::codes_of(failures), Each("E201"));
}

TEST_P(Verify, ReportsProgressToTheEnd) {
    std::uint64_t last = 0, whole = 0;
    verify_dataset(options_.output, [&](std::uint64_t done, std::uint64_t total) {
        EXPECT_GE(done, std::exchange(last, done));
        whole = total;
    });
    EXPECT_EQ(last, whole);
    EXPECT_GT(whole, 0u);
}

TEST_P(Verify, FindsTheSameOnAnyThreadsAndRanks) {
    const auto index = test::open_index(options_.output);
    for (const std::size_t block : {2u, 9u, 16u}) test::damage_block(*index, 0, block);
    const auto expected = texts(findings());
    EXPECT_THAT(expected, SizeIs(3));
    EXPECT_EQ(texts(verify_dataset(options_.output, {}, {4, {}})), expected);
    test::run_team(3, [&](const Team& team) {
        EXPECT_EQ(texts(verify_dataset(options_.output, {}, {2, team})), expected);
    });
}

TEST_P(Verify, TakesAMissingHelperForNoDamage) {
    const std::string before = std::getenv("LOCKSTEP_H5PROBE");
    ::setenv("LOCKSTEP_H5PROBE", "/nowhere/lockstep-h5probe", 1);
    EXPECT_EQ(caught_code([&] { findings(); }), "E233");
    ::setenv("LOCKSTEP_H5PROBE", before.c_str(), 1);
    EXPECT_THAT(findings(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Codecs, Verify, test::each_codec, test::name_of_codec);

class VerifyForeign : public InFolder {
  protected:
    VerifyForeign() {
        auto datasets = test::images_and_labels(200, 1);
        datasets[0].chunk = {16, 3, 5};
        datasets[0].filters = {{H5Z_FILTER_DEFLATE, {3}}};
        for (const char* name : {"a.h5", "b.h5"}) test::write_foreign(folder_ / name, datasets);
    }
    std::vector<Finding> findings(const VerifyOptions& options = {}) const {
        return verify_data(folder_.path(), fields_, {}, options);
    }
    // Chunk number `number` of b.h5, for good.
    StoredBlock damage(std::size_t number) const {
        const auto index = DatasetIndex::open(folder_.path(), fields_);
        const StoredBlock block = index.stored_blocks(0)[13 + number];
        test::overwrite(folder_ / "b.h5", block.offset + 2, "no zlib");
        return block;
    }

    std::vector<FieldMapping> fields_{{"images", "/x/data"}, {"labels", "/y"}};
};

TEST_F(VerifyForeign, FindsNothingInSoundFilesAndEndsWhereItsReportThrows) {
    EXPECT_THAT(findings(), IsEmpty());
    EXPECT_THAT(verify_data(folder_ / "?.h5", fields_), IsEmpty());
    EXPECT_THROW(verify_data(folder_.path(),
                             fields_,
                             [](std::uint64_t done, std::uint64_t total) {
                                 EXPECT_LE(done, total);
                                 throw std::runtime_error("stopped");
                             }),
                 std::runtime_error);
}

TEST_F(VerifyForeign, NamesEachChunkThatDoesNotExpandForAnyThreadsAndMembers) {
    const StoredBlock second = damage(2), fifth = damage(5);
    const std::vector<Finding> found = findings();
    ASSERT_THAT(found, SizeIs(2));
    EXPECT_EQ(found[0].code, "E213");
    EXPECT_EQ(found[0].file, "b.h5");
    EXPECT_EQ(found[0].field, "images");
    EXPECT_EQ(found[0].block, 2);
    EXPECT_EQ(found[0].offset, second.offset);
    EXPECT_EQ(found[1].offset, fifth.offset);
    EXPECT_THAT(found[0].text, HasSubstr("samples 232 to 247"));
    EXPECT_EQ(texts(findings({.threads = 3, .team = {}})), texts(found));
    for (const auto& failure : test::run_team(3, [&](const Team& team) {
             EXPECT_EQ(texts(findings({.threads = 2, .team = team})), texts(found));
         }))
        EXPECT_FALSE(failure);
}

TEST_F(VerifyForeign, OfPackedDataNeedsNoFields) {
    test::IdxPack options = test::options_for(folder_, test::make_samples(30), "toy", Codec::none);
    pack_dataset(options);
    EXPECT_THAT(verify_data(options.output, {}), IsEmpty());
    EXPECT_EQ(caught_code([&] { verify_data(options.output, fields_); }), "E106");
}

StoredBlock block_at(std::uint64_t offset, std::uint64_t bytes) {
    return {.offset = offset, .stored_bytes = bytes};
}

TEST(ShardSegments, CoverTheFileAndCutNoBlock) {
    const auto plan =
        plan_segments({{block_at(300, 90), block_at(100, 90)}, {block_at(390, 500)}}, 1000, 128);
    std::uint64_t end = 0, blocks = 0;
    for (const FileSegment& segment : plan.segments) {
        EXPECT_EQ(segment.offset, end);
        EXPECT_GT(segment.bytes, 0u);
        end += segment.bytes;
        for (const PlacedBlock& placed : segment.blocks) {
            EXPECT_GE(placed.block.offset, segment.offset);
            EXPECT_LE(placed.block.offset + placed.block.stored_bytes, end);
            ++blocks;
        }
        EXPECT_TRUE(segment.bytes <= 128 || segment.blocks.size() == 1);
    }
    EXPECT_EQ(end, 1000u);
    EXPECT_EQ(blocks, 3u);
}

TEST(ShardSegments, SetsAsideWhatCannotBeRead) {
    const auto plan = plan_segments(
        {{block_at(0, 100), block_at(50, 10), block_at(990, 20), block_at(~std::uint64_t{0}, 9)}},
        1000,
        4096);
    ASSERT_EQ(plan.overlaps.size(), 1u);
    EXPECT_EQ(plan.overlaps[0].number, 1u);
    EXPECT_EQ(plan.cut_off.size(), 2u);
    EXPECT_TRUE(plan_segments({}, 0, 4096).segments.empty());
}

}  // namespace
}  // namespace lockstep
