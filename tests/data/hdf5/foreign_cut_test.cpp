// SPDX-License-Identifier: Apache-2.0
// Foreign files whose chunks cut samples, as h5py's `chunks=True` makes them.
#include "lockstep/data/resident.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "stream/read_plan.hpp"
#include "support/unit.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

using test::ForeignDataset;

class ForeignCut : public test::ForeignFolder {
  protected:
    std::shared_ptr<const DatasetIndex> open(const std::vector<ForeignDataset>& datasets,
                                             const std::vector<FieldMapping>& fields) {
        return std::make_shared<const DatasetIndex>(
            DatasetIndex::open_foreign({write("a.h5", datasets)}, fields));
    }

    // `size` cut into `chunk`: what comes of it is what was written, by a stream, on another rank
    // and in memory.
    void expect_read(const std::vector<hsize_t>& size,
                     const std::vector<hsize_t>& chunk,
                     const std::vector<ForeignDataset::Filter>& filters) {
        ForeignDataset data{.size = size, .chunk = chunk, .filters = filters};
        std::size_t bytes = 1;
        for (const hsize_t extent : size) bytes *= extent;
        data.bytes = test::random_bytes(bytes, chunk.back());
        const auto index = open({data}, {{"values", "/x/data", RowLayout::value}});
        EXPECT_EQ(test::streamed(*index, 0), data.bytes);
        const DatasetIndex received = DatasetIndex::deserialize(index->serialize());
        EXPECT_EQ(received, *index);
        EXPECT_EQ(test::streamed(received, 0), data.bytes);
        const auto rows = ResidentRows::in_own_memory(index);
        rows->load({.threads = 2});
        EXPECT_TRUE(std::ranges::equal(rows->rows(0), data.bytes));
    }
};

TEST_F(ForeignCut, ChunksOfAnyShapeAndFiltersGiveTheRowsThatWereWritten) {
    const std::vector<std::vector<ForeignDataset::Filter>> chains{
        {},
        {{H5Z_FILTER_DEFLATE, {4}}},
        {{H5Z_FILTER_SHUFFLE, {1}}, {H5Z_FILTER_DEFLATE, {1}}, {H5Z_FILTER_FLETCHER32, {}}}};
    for (const auto& filters : chains) {
        expect_read({50, 3, 8, 8}, {13, 1, 4, 4}, filters);
        expect_read({50, 8, 8, 3}, {7, 4, 3, 2}, filters);
        expect_read({20, 9}, {5, 4}, filters);
        expect_read({20, 9}, {1, 4}, filters);
        expect_read({20, 3, 5}, {20, 3, 2}, filters);
    }
}

TEST_F(ForeignCut, FilesMayCutDifferentlyAndSomeNotAtAll) {
    std::vector<fs::path> files;
    std::vector<std::byte> wanted;
    for (const std::vector<hsize_t>& chunk :
         std::vector<std::vector<hsize_t>>{{4, 2, 3}, {}, {10, 5, 6}, {3, 5, 2}, {4, 2, 3}}) {
        const ForeignDataset data{
            .size = {10, 5, 6}, .chunk = chunk, .bytes = test::random_bytes(300, 1 + files.size())};
        wanted.insert(wanted.end(), data.bytes.begin(), data.bytes.end());
        files.push_back(write(fmt::format("{}.h5", files.size()), {data}));
    }
    const auto index = DatasetIndex::open_foreign(files, {{"values", "/x/data"}});
    EXPECT_EQ(index.forms().cuts.size(), 2u);
    EXPECT_EQ(test::streamed(index, 0), wanted);
    EXPECT_EQ(DatasetIndex::deserialize(index.serialize()), index);
}

TEST_F(ForeignCut, AWindowHoldsWholeBandsAndSaysWhatThatCosts) {
    const ForeignDataset data{
        .size = {4000, 16, 16}, .chunk = {1000, 8, 8}, .bytes = test::random_bytes(4000 * 256, 1)};
    const auto index = open({data}, {{"images", "/x/data", RowLayout::hw}});
    EXPECT_EQ(index->manifest().block_rows, 1000u);
    EXPECT_EQ(times_expanded(*index, 0), 1.0);
    EXPECT_THAT(
        cut_costs(*index),
        ElementsAre("chunks of 'images', 1000 x 8 x 8, cut samples: in lanes order each byte "
                    "is expanded 1.0 times, in blocks of 1,000 samples (250 KiB); packing "
                    "would save nothing but memory, and add hashes"));
}

// Four lanes of three times 1,000 rows and 998: where the short block does not come last, lanes
// begin within blocks.
TEST_F(ForeignCut, ABlockOnTheBorderOfLanesMayBeExpandedForBoth) {
    const ForeignDataset data{
        .size = {3998, 16, 16}, .chunk = {1000, 8, 8}, .bytes = test::random_bytes(3998 * 256, 1)};
    const auto index = open({data}, {{"images", "/x/data", RowLayout::hw}});
    EXPECT_EQ(times_expanded(*index, 0), 1.0);
    EXPECT_THAT(cut_costs(*index)[0],
                ContainsRegex("expanded 1.0 times \\(up to 1.[1-7] by several ranks or "
                              "with little memory\\), .*packing would save nothing"));
}

TEST_F(ForeignCut, AFieldOfOtherBandsIsExpandedMoreOften) {
    const ForeignDataset images{
        .size = {1200, 16, 16}, .chunk = {400, 8, 16}, .bytes = test::random_bytes(1200 * 256, 1)};
    const ForeignDataset masks{.path = "/m",
                               .size = {1200, 4, 4},
                               .chunk = {600, 4, 2},
                               .bytes = std::vector<std::byte>(1200 * 16, std::byte{1})};
    const auto index =
        open({images, masks}, {{"images", "/x/data", RowLayout::hw}, {"masks", "/m"}});
    EXPECT_EQ(times_expanded(*index, 0), 1.0);
    EXPECT_EQ(times_expanded(*index, 1), 2.0);
    EXPECT_THAT(cut_costs(*index)[1], HasSubstr("expanded 2.0 times"));
    EXPECT_THAT(cut_costs(*index)[1], HasSubstr("in packed shards it is expanded once"));
}

TEST_F(ForeignCut, ClassesOfMasksAreCountedWithoutPadding) {
    ForeignDataset masks{.path = "/m", .size = {10, 3, 5}, .chunk = {4, 2, 2}};
    masks.bytes.assign(150, std::byte{2});
    masks.bytes[149] = std::byte{4};
    const auto index = open({masks}, {{"masks", "/m"}});
    EXPECT_THAT(index->fields()[0].class_counts, ElementsAre(0, 0, 149, 0, 1));
    const ForeignDataset negative{.path = "/m",
                                  .type = H5T_STD_I8LE,
                                  .size = {10, 3, 5},
                                  .chunk = {4, 2, 2},
                                  .bytes = std::vector<std::byte>(150, std::byte{0xff})};
    const Error error = test::error_of([&] { open({negative}, {{"masks", "/m"}}); });
    EXPECT_EQ(error.code(), "E210");
    EXPECT_THAT(error.what(), HasSubstr("sample 0"));
}

TEST_F(ForeignCut, DamageMasksTheRowsOfItsBand) {
    const ForeignDataset data{.size = {20, 4, 4},
                              .chunk = {5, 2, 4},
                              .bytes = test::random_bytes(320, 1),
                              .filters = {{H5Z_FILTER_FLETCHER32, {}}}};
    const auto index = open({data}, {{"values", "/x/data"}});
    const StoredBlock& tile = index->stored_blocks(0)[3];
    test::overwrite(folder_ / "a.h5", tile.offset + 3, "\xa5\x5a");
    const Error error = test::error_of([&] { test::streamed(*index, 0); });
    EXPECT_EQ(error.code(), "E213");
    EXPECT_THAT(error.what(), HasSubstr("(samples 5 to 9)"));
    const auto rows = ResidentRows::in_own_memory(index);
    rows->load({.threads = 2, .on_bad_data = BadData::mask});
    rows->seal();
    EXPECT_EQ(rows->masked_samples(), 5u);
    EXPECT_TRUE(rows->is_masked(5) && !rows->is_masked(4) && !rows->is_masked(10));
    BatchStream stream(index,
                       {.order = OrderKind::sequential, .batch = 20, .on_bad_data = BadData::mask});
    const Batch batch = stream.next();
    EXPECT_EQ(std::ranges::count(batch.valid, 0), 5);
}

}  // namespace
}  // namespace lockstep
