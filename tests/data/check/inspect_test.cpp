// SPDX-License-Identifier: Apache-2.0
#include "check/inspection.hpp"
#include "data/foreign_files.hpp"
#include "data/samples.hpp"

#include <cmath>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Inspect, ShowsWhatIsThere) {
    const test::TempDir folder;
    PackOptions options = test::options_for(folder, test::make_samples(1000), "toy", Codec::lz4);
    options.class_names = {
        "zero", "one", "two", "three", "four", "\x1b[31mfive", "6", "7", "8", "9"};
    options.shards = 2;
    pack_dataset(options);
    const std::string text = inspect_data(options.output);
    for (const char* expected : {"toy (train)",
                                 "1,000 in 63 blocks of 16 rows",
                                 "in 2 shards",
                                 "codec lz4",
                                 "shuffled:0",
                                 "images  u8 [1,000, 1, 4, 4]",
                                 "images: C 1, H 4, W 4",
                                 "labels  i64 [1,000]",
                                 "mean 0.",
                                 "3 three",
                                 "toy-00001-of-00002.h5"})
        EXPECT_THAT(text, HasSubstr(expected));
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Inspect, StaysWithinEightyColumns) {
    const test::TempDir folder;
    PackOptions options = test::options_for(folder, test::make_samples(100), "t");
    pack_dataset(options);
    std::istringstream lines(inspect_data(options.output));
    for (std::string line; std::getline(lines, line);)
        EXPECT_TRUE(line.size() <= 80 || line.starts_with("  lockstep train")) << line;
}

test::Samples sorted_samples(std::uint64_t count) {
    test::Samples samples = test::make_samples(count);
    std::ranges::sort(samples.labels);
    return samples;
}

std::string joined(const std::vector<std::string>& advice) {
    std::string all;
    for (const std::string& one : advice) all += one + "\n";
    return all;
}

TEST(Inspect, TellsSortedLabelsFromMixedOnes) {
    const test::TempDir folder;
    PackOptions options = test::options_for(folder, sorted_samples(4000), "sorted");
    options.block_rows = 100;
    options.shuffle_seed.reset();
    pack_dataset(options);
    const LayoutReport sorted = layout_report(test::open_index(options.output));
    ASSERT_EQ(sorted.labels.size(), 1u);
    EXPECT_LT(sorted.labels[0].mixing(), 0.2);
    EXPECT_THAT(joined(sorted.advice), HasSubstr("--shuffle-seed"));
    options.output = folder / "mixed";
    options.shuffle_seed = 3;
    pack_dataset(options);
    const LayoutReport mixed = layout_report(test::open_index(options.output));
    EXPECT_GT(mixed.labels[0].mixing(), 0.95);
    EXPECT_THAT(joined(mixed.advice), testing::Not(HasSubstr("--shuffle-seed")));
}

TEST(Inspect, SaysWhatAJobGets) {
    const test::TempDir folder;
    PackOptions options = test::options_for(folder, test::make_samples(4096), "toy", Codec::lz4);
    options.shards = 2;
    pack_dataset(options);
    const auto index = test::open_index(options.output);
    const JobShape even{.ranks = 8, .nodes = 2, .batch = 128, .node_memory_bytes = 1u << 30};
    const JobFit fits = *layout_report(index, even).fit;
    EXPECT_EQ(fits.lanes, 64);
    EXPECT_EQ(fits.lanes_of_rank, 8u);
    EXPECT_DOUBLE_EQ(fits.read_amplification, 1.0);
    EXPECT_EQ(fits.rank_bytes, 9 * fits.window_bytes);
    EXPECT_EQ(fits.window_bytes, 4u * 16 * 24);
    EXPECT_TRUE(fits.lanes_divide_evenly && fits.shards_suffice && fits.fits_in_memory);
    const JobShape uneven{.ranks = 6, .nodes = 3, .batch = 100};
    const LayoutReport misfit = layout_report(index, uneven);
    EXPECT_GT(misfit.fit->read_amplification, 1.05);
    EXPECT_FALSE(misfit.fit->lanes_divide_evenly || misfit.fit->shards_suffice);
    EXPECT_THAT(joined(misfit.advice), HasSubstr("2 shards for 3 nodes"));
    std::istringstream lines(inspect_data(options.output, {.job = even}));
    for (std::string line; std::getline(lines, line);)
        EXPECT_TRUE(line.size() <= 80 || line.starts_with("advice") ||
                    line.starts_with("  lockstep train"))
            << line;
}

TEST(Inspect, AdvisesOnBlocksAndCodecs) {
    const test::TempDir folder;
    // Random bytes: no codec gets them smaller; 2 KiB each, so that blocks of 16 rows have 32 KiB.
    test::Samples samples = test::make_samples(10, 1, {.channels = 1, .height = 32, .width = 64});
    CounterRandom random(Purpose::test, {5});
    while (samples.images.size() < 9000) {
        std::string image(2048, '\0');
        for (char& pixel : image) pixel = static_cast<char>(random.below(256));
        samples.images.push_back(std::move(image));
        samples.labels.push_back(static_cast<std::uint8_t>(samples.images.size() % 10));
    }
    const PackOptions options = test::options_for(folder, samples, "toy", Codec::lz4);
    pack_dataset(options);
    const LayoutReport found = layout_report(test::open_index(options.output));
    EXPECT_THAT(joined(found.advice), HasSubstr("--block-rows 256"));
    EXPECT_THAT(joined(found.advice), HasSubstr("does not pay for decoding"));
    const Json json = parse_json(inspect_data(options.output, {.as_json = true}), "it");
    EXPECT_EQ(json.at("fields").at(0).at("block_bytes"), 32768);
    EXPECT_EQ(json.at("advice").size(), found.advice.size());
}

// Labels of 16 bits, sorted, in files that only packing can store in another way.
TEST(Inspect, AdvisesToPackFilesOfOthers) {
    const test::TempDir folder;
    constexpr std::uint64_t rows = 60'000;
    std::vector<std::byte> labels;
    for (std::uint64_t row = 0; row < rows; ++row) {
        labels.push_back(static_cast<std::byte>(row * 10 / rows));
        labels.push_back(std::byte{0});
    }
    test::write_foreign(
        folder / "a.h5",
        {{.path = "/y", .type = H5T_STD_I16LE, .size = {rows}, .chunk = {1000}, .bytes = labels}});
    const auto index = std::make_shared<const DatasetIndex>(
        DatasetIndex::open_foreign({folder / "a.h5"}, {{"labels", "/y"}}));
    const LayoutReport found = layout_report(index);
    EXPECT_FALSE(found.fields.at(0).is_chunked);
    ASSERT_EQ(found.labels.size(), 1u);
    EXPECT_NEAR(found.labels[0].whole_bits, std::log2(10.0), 1e-9);
    EXPECT_THAT(inspect_data(folder / "a.h5", {.fields = {{"labels", "/y"}}}),
                HasSubstr("data set   a\n"))
        << "no split";
    EXPECT_LT(found.labels[0].mixing(), 0.2);
    EXPECT_THAT(joined(found.advice), HasSubstr("lockstep data pack --hdf5"));
    EXPECT_THAT(joined(found.advice), testing::Not(HasSubstr("reshard")));
}

}  // namespace
}  // namespace lockstep
