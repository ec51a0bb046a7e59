// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/check.hpp"

#include "check/inspection.hpp"
#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "hdf5/contents.hpp"
#include "hdf5/look.hpp"
#include "support/unit.hpp"
#include "transform/image.hpp"

#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

using test::ForeignDataset;

// But for commands, which are for copying, and lines that begin with `wide`.
void expect_narrow(const std::string& text, const char* wide = "  lockstep train") {
    for (const std::string& line : split(text, '\n'))
        EXPECT_TRUE(line.size() <= 80 || line.starts_with("  lockstep train") ||
                    line.starts_with(wide))
            << line;
}

using Inspect = InFolder;

TEST_F(Inspect, ShowsWhatIsThere) {
    test::IdxPack options = test::options_for(folder_, test::make_samples(1000), "toy", Codec::lz4);
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
    expect_narrow(text);
}

TEST_F(Inspect, TellsSortedLabelsFromMixedOnes) {
    test::Samples samples = test::make_samples(4000);
    std::ranges::sort(samples.labels);
    test::IdxPack options = test::options_for(folder_, samples, "sorted");
    options.block_rows = 100;
    options.shuffle_seed.reset();
    const LayoutReport sorted = layout_report(test::packed(options));
    ASSERT_EQ(sorted.labels.size(), 1u);
    EXPECT_LT(sorted.labels[0].mixing(), 0.2);
    EXPECT_THAT(sorted.advice, Contains(HasSubstr("--shuffle-seed")));
    options.output = folder_ / "mixed";
    options.shuffle_seed = 3;
    const LayoutReport mixed = layout_report(test::packed(options));
    EXPECT_GT(mixed.labels[0].mixing(), 0.95);
    EXPECT_THAT(mixed.advice, Not(Contains(HasSubstr("--shuffle-seed"))));
}

TEST_F(Inspect, SaysWhatAJobGets) {
    test::IdxPack options = test::options_for(folder_, test::make_samples(4096), "toy", Codec::lz4);
    options.shards = 2;
    const auto index = test::packed(options);
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
    EXPECT_THAT(misfit.advice, Contains(HasSubstr("2 shards for 3 nodes")));
    expect_narrow(inspect_data(options.output, {.job = even}), "advice");
}

TEST_F(Inspect, AdvisesOnBlocksAndCodecs) {
    // Random bytes: no codec gets them smaller; 2 KiB each, so that blocks of 16 rows have 32 KiB.
    test::Samples samples = test::make_samples(10, 1, {.channels = 1, .height = 32, .width = 64});
    CounterRandom random(Purpose::test, {5});
    while (samples.images.size() < 9000) {
        std::string image(2048, '\0');
        for (char& pixel : image) pixel = static_cast<char>(random.below(256));
        samples.images.push_back(std::move(image));
        samples.labels.push_back(static_cast<std::uint8_t>(samples.images.size() % 10));
    }
    const test::IdxPack options = test::options_for(folder_, samples, "toy", Codec::lz4);
    const LayoutReport found = layout_report(test::packed(options));
    EXPECT_THAT(found.advice,
                AllOf(Contains(HasSubstr("--block-rows 256")),
                      Contains(HasSubstr("does not pay for decoding"))));
    const Json json = parse_json(inspect_data(options.output, {.as_json = true}), "it");
    EXPECT_EQ(json.at("fields").at(0).at("block_bytes"), 32768);
    EXPECT_EQ(json.at("advice").size(), found.advice.size());
}

// Labels of 16 bits, sorted, in files that only packing can store in another way.
TEST_F(Inspect, AdvisesToPackFilesOfOthers) {
    constexpr std::uint64_t rows = 60'000;
    std::vector<std::byte> labels;
    for (std::uint64_t row = 0; row < rows; ++row) {
        labels.push_back(static_cast<std::byte>(row * 10 / rows));
        labels.push_back(std::byte{0});
    }
    const fs::path file = test::write_foreign(
        folder_ / "a.h5",
        {{.path = "/y", .type = H5T_STD_I16LE, .size = {rows}, .chunk = {1000}, .bytes = labels}});
    const auto index = std::make_shared<const DatasetIndex>(
        DatasetIndex::open_foreign({file}, {{"labels", "/y"}}));
    const LayoutReport found = layout_report(index);
    EXPECT_FALSE(found.fields.at(0).is_chunked);
    ASSERT_EQ(found.labels.size(), 1u);
    EXPECT_NEAR(found.labels[0].whole_bits, std::log2(10.0), 1e-9);
    EXPECT_THAT(inspect_data(file, {.fields = {{"labels", "/y"}}}), HasSubstr("data set   a\n"))
        << "no split";
    EXPECT_LT(found.labels[0].mixing(), 0.2);
    EXPECT_THAT(found.advice, Contains(HasSubstr("lockstep data pack --hdf5")));
    EXPECT_THAT(found.advice, Not(Contains(HasSubstr("reshard"))));
}

// One data set of a file.
std::string text_of(InspectedData data, std::size_t columns) {
    if (data.size.empty()) data.size = {0};
    data.classes_in_rows = data.size[0];
    return inspection_text({.title = "a.h5", .all = {std::move(data)}}, columns);
}

TEST(InspectionText, GoesOnInFurtherLinesOfANarrowTerminal) {
    const InspectedData data{
        .name = "/g/data", .type = "u8", .size = {60000, 28, 28}, .storage = "contiguous"};
    EXPECT_THAT(text_of(data, 80), HasSubstr("g/\n  data  u8 [60,000, 28, 28]  contiguous\n"));
    EXPECT_THAT(text_of(data, 30), HasSubstr("  data  u8 [60,000, 28, 28]\n      contiguous\n"));
    EXPECT_THAT(text_of(data, 1),
                HasSubstr("  data\n      u8 [60,000, 28, 28]\n      contiguous\n"))
        << "what is longer stays whole";
    EXPECT_EQ(text_of({.name = "/a\x1b[2J/x"}, 80).find('\x1b'), std::string::npos);
}

TEST(InspectionText, DrawsABarForEachClass) {
    const InspectedData named{.name = "y",
                              .class_names = {"cat", "dog", "no\x1b"},
                              .class_counts = {1000, 1, 0},
                              .are_classes_numbered = true};
    EXPECT_THAT(text_of(named, 80),
                HasSubstr("  0 cat  1,000  ########################################\n"
                          "  1 dog      1  #\n"
                          "  2 no?      0  \n"));
    const InspectedData numbers{.name = "y", .class_names = {"-1", "7"}, .class_counts = {4, 2}};
    EXPECT_THAT(text_of(numbers, 11), HasSubstr("  -1  4  ##\n  7   2  #\n"));
    const std::string many =
        text_of({.name = "y", .class_counts = std::vector<std::uint64_t>(100, 1)}, 20);
    EXPECT_THAT(many, HasSubstr("\n  19  1  ###########\n  and 80 more\n"));
}

template <class Value>
SampledRows rows_of(ElementType type,
                    std::vector<std::int64_t> shape,
                    std::uint64_t rows,
                    const std::vector<Value>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {type, std::move(shape), rows, rows, {bytes.begin(), bytes.end()}};
}

// The color of a pixel of tile number `tile`, of tiles of 48 x 48.
std::vector<int> pixel(const Image& sheet, int tile, int y, int x) {
    const int line = 2 + tile / 8 * 50 + y, column = 2 + tile % 8 * 50 + x;
    const auto at = static_cast<std::size_t>(line) * sheet.row_bytes() + 3U * column;
    return {sheet.pixels[at], sheet.pixels[at + 1], sheet.pixels[at + 2]};
}

TEST(ContactSheet, ShowsChannelsWhereverTheyAre) {
    // Two images of 2 x 2 pixels: red counts up from 0, green from 100, blue from 200.
    std::vector<std::uint8_t> first, last;
    for (int image = 0; image < 2; ++image) {
        for (int c = 0; c < 3; ++c)
            for (int p = 0; p < 4; ++p)
                first.push_back(static_cast<std::uint8_t>(100 * c + 4 * image + p));
        for (int p = 0; p < 4; ++p)
            for (int c = 0; c < 3; ++c)
                last.push_back(static_cast<std::uint8_t>(100 * c + 4 * image + p));
    }
    const Image a =
        contact_sheet(rows_of(ElementType::u8, {3, 2, 2}, 2, first), PixelOrder::channels_first);
    const Image b =
        contact_sheet(rows_of(ElementType::u8, {2, 2, 3}, 2, last), PixelOrder::channels_last);
    EXPECT_EQ(a.height, 52u);
    EXPECT_EQ(a.width, 102u);
    EXPECT_EQ(a.pixels, b.pixels);
    EXPECT_EQ(pixel(a, 0, 0, 0), (std::vector<int>{0, 100, 200}));
    EXPECT_EQ(pixel(a, 1, 0, 47), (std::vector<int>{5, 105, 205})) << "each pixel is 24 wide";
    EXPECT_EQ(pixel(a, 1, 24, 0), (std::vector<int>{6, 106, 206}));
    EXPECT_EQ(pixel(a, 0, -1, 0), (std::vector<int>{40, 40, 40})) << "the gap";
}

TEST(ContactSheet, GoesFromBlackToWhiteWhateverTheTypeAndTakesSomeOfMany) {
    const std::vector<double> values{-1, 0, 1, std::nan("")};
    const Image sheet =
        contact_sheet(rows_of(ElementType::f64, {2, 2}, 1, values), PixelOrder::plane);
    EXPECT_EQ(pixel(sheet, 0, 0, 0), (std::vector<int>{0, 0, 0}));
    EXPECT_EQ(pixel(sheet, 0, 0, 24), (std::vector<int>{128, 128, 128}));
    EXPECT_EQ(pixel(sheet, 0, 24, 0), (std::vector<int>{255, 255, 255}));
    EXPECT_EQ(pixel(sheet, 0, 24, 24), (std::vector<int>{0, 0, 0}));
    const std::vector<std::uint8_t> nines(100 * 200 * 100, 9);
    const SampledRows many = rows_of(ElementType::u8, {200, 100}, 100, nines);
    EXPECT_EQ(images_on_sheet(many), 64u);
    const Image small = contact_sheet(many, PixelOrder::plane);
    EXPECT_EQ(small.height, 8 * 98u + 2);
    EXPECT_EQ(small.width, 8 * 50u + 2);
}

TEST(ValueSummary, CountsWhatIsNotFiniteApart) {
    const std::vector<float> values{1.5F, -2, HUGE_VALF, std::nanf("")};
    const ValueSummary summary = summary_of(rows_of(ElementType::f32, {4}, 1, values));
    EXPECT_EQ(range_text(summary), "-2 .. 1.5, mean -0.25, 2 not finite");
    EXPECT_EQ(range_text({}), "no finite number");
    EXPECT_TRUE(whole_counts(rows_of(ElementType::f32, {4}, 1, values), 1000).empty());
    const std::vector<std::int32_t> whole{-1, 3, 3};
    EXPECT_THAT(whole_counts(rows_of(ElementType::i32, {}, 3, whole), 1000),
                ElementsAre(testing::Pair(-1, 1), testing::Pair(3, 2)));
    std::vector<std::int32_t> ids(1001);
    std::iota(ids.begin(), ids.end(), 0);
    EXPECT_TRUE(whole_counts(rows_of(ElementType::i32, {}, 1001, ids), 1000).empty());
}

// Images of 3 x 6 x 5 in chunks, their classes, and what is in the way of three others.
class InspectFiles : public test::ForeignFolder {
  protected:
    InspectFiles() {
        ForeignDataset images{.path = "/scan/x",
                              .size = {8, 3, 6, 5},
                              .chunk = {4, 3, 6, 5},
                              .filters = {{H5Z_FILTER_DEFLATE, {1}}}};
        for (int i = 0; i < 8 * 90; ++i) images.bytes.push_back(static_cast<std::byte>(i));
        ForeignDataset labels{.path = "/scan/y", .size = {8}};
        for (int i = 0; i < 8; ++i) labels.bytes.push_back(static_cast<std::byte>(i % 3));
        test::write_foreign(file_,
                            {images,
                             labels,
                             {.path = "/unwritten", .size = {8, 2}},
                             {.path = "/esc\x1b[31m",
                              .type = H5T_IEEE_F32LE,
                              .size = {2},
                              .bytes = test::random_bytes(8, 1)}});
    }

    fs::path file_ = folder_ / "my scan.h5";
};

TEST_F(InspectFiles, ShowsTreeRangesClassesAndTheCommand) {
    const std::string text = inspect_data(file_);
    EXPECT_THAT(
        text,
        has("\nscan/\n  x  u8 [8, 3, 6, 5]  chunks [4, 3, 6, 5], deflate  0 .. 255, mean 120.6\n",
            "\n  y  u8 [8]  contiguous  0 .. 2, mean 0.875\n",
            "\nunwritten  u8 [8, 2]  contiguous  not streamed: it was never written\n",
            "\n/scan/y: 3 classes in 8 rows\n  0  3  ####",
            "\n  lockstep train --data '" + file_.string() +
                "' --field images=/scan/x:CHW --field labels=/scan/y --batch 8 --run "
                "'runs/my scan'\n"));
    EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "names are shown, not obeyed";
}

TEST_F(InspectFiles, WritesAContactSheet) {
    const fs::path sheet = folder_ / "sheet.png";
    EXPECT_THAT(inspect_data(file_, {.sheet = sheet}), HasSubstr("sheet.png: 8 of 8 images\n"));
    const std::string png = content_of(sheet);
    const Image image = decode_png(bytes_of(png));
    EXPECT_EQ(image.channels, 3u);
    // Enlarged 8 times; of the second image, whose bytes begin at 90, the last pixel.
    EXPECT_EQ(image.width, 8 * (5 * 8 + 2) + 2u);
    EXPECT_EQ(image.height, 6 * 8 + 4u);
    const std::size_t at = (2 + 47) * image.row_bytes() + 3 * (2 + 42 + 39);
    EXPECT_EQ(image.pixels[at], 90 + 29);
    EXPECT_EQ(image.pixels[at + 1], 90 + 30 + 29);
    EXPECT_EQ(image.pixels[at + 2], 90 + 60 + 29);
    EXPECT_EQ(caught_code([&] { inspect_data(file_, {.sheet = sheet}); }), "E407");
    EXPECT_EQ(content_of(sheet), png);
}

TEST_F(InspectFiles, SaysWhereThereAreNoImages) {
    const fs::path table =
        write("table.h5", {{.path = "/x", .size = {5, 4}, .bytes = test::random_bytes(20, 1)}});
    EXPECT_EQ(caught_code([&] { inspect_data(table, {.sheet = folder_ / "no.png"}); }), "E217");
    EXPECT_FALSE(fs::exists(folder_ / "no.png"));
    EXPECT_THAT(inspect_data(table), HasSubstr("no command to train on it: no labels"));
    const fs::path single =
        write("single.h5", {{.path = "/x", .size = {5}, .bytes = test::random_bytes(5, 1)}});
    EXPECT_THAT(inspect_data(single),
                HasSubstr("'/x' has one value for each sample, and a model's input has several"));
}

TEST_F(InspectFiles, ShowsWhatTheLibraryDoesNotOpen) {
    const std::uint64_t offset = look_at_file({file_, {"/scan/y"}}).datasets[0].offset;
    std::string bytes = content_of(file_), layout = "\x03\x01";  // version, contiguous
    layout.append(reinterpret_cast<const char*>(&offset), sizeof offset);
    const std::size_t at = bytes.find(layout);
    ASSERT_NE(at, bytes.npos);
    bytes[at] = 9;  // as a newer library may write it
    write_file_atomically(file_, bytes);
    EXPECT_THAT(inspect_data(file_, {.columns = 200}),
                HasSubstr("\n  y  not streamed: HDF5 says: bad version number"));
    EXPECT_THAT(list_text(candidates_of(file_)),
                HasSubstr("/scan/y: a data set, which cannot be streamed: HDF5 says: bad version"));
}

TEST_F(InspectFiles, ReadsSomeRowsOfLargeDataAndSaysHowMany) {
    const std::vector<std::byte> bytes(5000 * 4096);
    const fs::path large =
        write("large.h5", {{.path = "/x", .size = {5000, 4096}, .bytes = bytes}});
    EXPECT_THAT(inspect_data(large), HasSubstr("0 .. 0, mean 0 in 2,048 of 5,000 rows"));
}

TEST_F(InspectFiles, TakesSeveralFilesByTheFirstAndOpensNoMoreThanSome) {
    const fs::path other = folder_ / "n.h5";
    fs::copy_file(file_, other);
    const std::string text = inspect_data(file_.string() + "," + other.string());
    EXPECT_THAT(text, HasSubstr(", the first of 2 files\n"));
    EXPECT_THAT(text, HasSubstr("train --data " + folder_.path().string() + " --field"));
    EXPECT_EQ(caught_code([&] { inspect_data(folder_ / "none*.h5"); }), "E201");
    EXPECT_EQ(caught_code([&] { inspect_data(folder_.file("a.txt", "text")); }), "E216");
    for (int i = 100; i < 120; ++i)
        fs::copy_file(file_, folder_ / ("many" + std::to_string(i) + ".h5"));
    EXPECT_THAT(inspect_data(folder_ / "many*.h5"),
                HasSubstr("\n19 more files, of which 16 were opened: their data sets fit"));
}

TEST_F(InspectFiles, SaysWhetherOtherFilesFitTheFirst) {
    const auto scan = [&](const char* name, std::uint64_t rows, std::uint64_t columns) {
        const auto bytes = test::random_bytes(rows * columns, 1);
        write(name, {{.path = "/x", .size = {rows, columns}, .bytes = bytes}});
    };
    scan("s1.h5", 5, 4);
    EXPECT_THAT(inspect_data(folder_ / "s*.h5"), Not(HasSubstr("more file")));
    scan("s2.h5", 7, 4);
    EXPECT_THAT(inspect_data(folder_ / "s*.h5"),
                HasSubstr("\n1 more file: their data sets fit the first file's\n"));
    scan("s3.h5", 5, 3);
    const std::string place = (folder_ / "s3.h5").string();
    const std::string misfit = "E208: '/x' of '" + place + "' does not fit the other files";
    EXPECT_THAT(inspect_data(folder_ / "s*.h5"),
                has("\n2 more files: " + misfit, "\nno command to train on it: " + misfit));
    folder_.file("s3.h5", "text");
    EXPECT_THAT(inspect_data(folder_ / "s*.h5"), HasSubstr(": E203: '" + place + "' is not HDF5"));
    fs::copy_file(file_, folder_ / "s3.h5", fs::copy_options::overwrite_existing);
    EXPECT_THAT(inspect_data(folder_ / "s*.h5"),
                HasSubstr(": E207: '" + place + "' has no data set '/x'"));
}

// The same words as without fields, for the fields that are named.
TEST_F(InspectFiles, ShowsFieldsThatAreNamedAndWhatAJobGetsOfTheSuggestedOnes) {
    const std::vector<FieldMapping> fields{{"images", "/scan/x", RowLayout::chw},
                                           {"labels", "/scan/y"}};
    const std::string text = inspect_data(file_, {.fields = fields});
    EXPECT_THAT(text, HasSubstr("samples    8 in"));
    EXPECT_THAT(text, HasSubstr("\nimages  u8 [8, 3, 6, 5]  chunks, 2 blocks of 360 B, "));
    EXPECT_THAT(text, HasSubstr("\nlabels: 3 classes in 8 rows\n  0  3  ####"));
    EXPECT_THAT(text, HasSubstr("--field labels=/scan/y --batch 8 --run 'runs/my scan'\n"));
    EXPECT_THAT(inspect_data(file_, {.job = JobShape{.ranks = 2}}), HasSubstr("\n2 ranks "));
}

TEST_F(InspectFiles, ShowsEachGroupOnceAndTakesNothingBesideGroupsForSamplesInThem) {
    const auto at = [](const char* path) { return ForeignDataset{.path = path, .size = {2}}; };
    EXPECT_THAT(
        inspect_data(write("groups.h5", {at("/a/b/x"), at("/a/b/y"), at("/a/c/x"), at("/x")})),
        ContainsRegex("\na/\n  b/\n    x  .*\n    y  .*\n  c/\n    x  .*\nx  "));
    const auto filled = [](const char* path, const std::vector<hsize_t>& size) {
        return ForeignDataset{.path = path, .size = size, .bytes = test::random_bytes(20, 1)};
    };
    const fs::path views = write(
        "views.h5",
        {filled("/data/left/x", {5, 4}), filled("/data/right/x", {5, 4}), filled("/labels", {20})});
    EXPECT_THAT(inspect_data(views), Not(HasSubstr("each group")));
}

TEST_F(InspectFiles, IsJsonForPrograms) {
    const InspectOptions options{.sheet = folder_ / "sheet.png", .as_json = true};
    const Json json = parse_json(inspect_data(file_, options), "it");
    const Json* x = nullptr;
    for (const Json& each : json["fields"])
        if (each["name"] == "/scan/x") x = &each;
    ASSERT_NE(x, nullptr);
    EXPECT_EQ((*x)["type"], "u8");
    EXPECT_EQ((*x)["size"], (Json{8, 3, 6, 5}));
    EXPECT_EQ((*x)["obstacle"], "");
    EXPECT_EQ((*x)["values"]["rows_read"], 8);
    EXPECT_EQ((*x)["values"]["most"], 255.0);
    EXPECT_EQ(json["other_files"]["opened"], 0);
    EXPECT_EQ(json["sheet"]["images"], 8);
}

TEST_F(InspectFiles, OfPackedDataCountsAllClasses) {
    const test::Samples samples = test::make_samples(60);
    const test::IdxPack options = test::options_for(folder_, samples, "set", Codec::lz4);
    pack_dataset(options);
    const std::string text = inspect_data(options.output, {.sheet = folder_ / "packed.png"});
    EXPECT_THAT(text, HasSubstr("\nimages  u8 [60, 1, 4, 4]  chunks, 4 blocks of 256 B, "));
    EXPECT_THAT(text, HasSubstr("\nlabels: 10 classes in 60 rows\n"));
    EXPECT_THAT(text, HasSubstr("packed.png: 60 of 60 images\n"));
    EXPECT_THAT(text,
                HasSubstr("\n  lockstep train --data " + options.output.string() +
                          " --batch 32 --run runs/set\n"));
}

TEST_F(InspectFiles, SaysWhatIsDamagedAndGoesOn) {
    const test::Samples samples = test::make_samples(60);
    const test::IdxPack options = test::options_for(folder_, samples, "set");
    pack_dataset(options);
    test::damage_block(DatasetIndex::open(options.output), 0, 0);
    const std::string text = inspect_data(options.output);
    EXPECT_THAT(text, has("E213: ", "\nlabels: 10 classes in 60 rows\n"));
}

}  // namespace
}  // namespace lockstep
