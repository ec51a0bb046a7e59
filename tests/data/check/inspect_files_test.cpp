// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"
#include "lockstep/data/check.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "hdf5/contents.hpp"
#include "hdf5/look.hpp"
#include "support/caught.hpp"
#include "transform/image.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::ForeignDataset;
using testing::HasSubstr;
using testing::Not;

// Images of 3 x 6 x 5 in chunks, their classes, and what is in the way of three others.
class InspectFiles : public testing::Test {
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
    std::string inspected(const fs::path& where, const InspectOptions& options = {}) {
        return inspect_data(where, options);
    }

    test::TempDir folder_;
    fs::path file_ = folder_ / "my scan.h5";
};

TEST_F(InspectFiles, ShowsTreeRangesClassesAndTheCommand) {
    const std::string text = inspected(file_);
    EXPECT_THAT(
        text,
        HasSubstr(
            "\nscan/\n  x  u8 [8, 3, 6, 5]  chunks [4, 3, 6, 5], deflate  0 .. 255, mean 120.6\n"));
    EXPECT_THAT(text, HasSubstr("\n  y  u8 [8]  contiguous  0 .. 2, mean 0.875\n"));
    EXPECT_THAT(
        text,
        HasSubstr("\nunwritten  u8 [8, 2]  contiguous  not streamed: it was never written\n"));
    EXPECT_THAT(text, HasSubstr("\n/scan/y: 3 classes in 8 rows\n  0  3  ####"));
    EXPECT_THAT(text,
                HasSubstr("\n  lockstep train --data '" + file_.string() +
                          "' --field images=/scan/x:CHW --field labels=/scan/y --batch 8 --run "
                          "'runs/my scan'\n"));
    EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "names are shown, not obeyed";
}

TEST_F(InspectFiles, FitsNarrowTerminals) {
    EXPECT_THAT(
        inspected(file_, {.columns = 30}),
        HasSubstr("\n  x  u8 [8, 3, 6, 5]\n      chunks [4, 3, 6, 5], deflate\n      0 .. 255"));
}

TEST_F(InspectFiles, WritesAContactSheet) {
    const fs::path sheet = folder_ / "sheet.png";
    EXPECT_THAT(inspected(file_, {.sheet = sheet}), HasSubstr("sheet.png: 8 of 8 images\n"));
    const std::string png = test::content_of(sheet);
    const Image image = decode_png(bytes_of(png));
    EXPECT_EQ(image.channels, 3u);
    // Enlarged 8 times; of the second image, whose bytes begin at 90, the last pixel.
    EXPECT_EQ(image.width, 8 * (5 * 8 + 2) + 2u);
    EXPECT_EQ(image.height, 6 * 8 + 4u);
    const std::size_t at = (2 + 47) * image.row_bytes() + 3 * (2 + 42 + 39);
    EXPECT_EQ(image.pixels[at], 90 + 29);
    EXPECT_EQ(image.pixels[at + 1], 90 + 30 + 29);
    EXPECT_EQ(image.pixels[at + 2], 90 + 60 + 29);
    EXPECT_EQ(test::caught_code([&] { inspected(file_, {.sheet = sheet}); }), "E407");
    EXPECT_EQ(test::content_of(sheet), png);
}

TEST_F(InspectFiles, SaysWhereThereAreNoImages) {
    const fs::path table = folder_ / "table.h5";
    test::write_foreign(table,
                        {{.path = "/x", .size = {5, 4}, .bytes = test::random_bytes(20, 1)}});
    EXPECT_EQ(test::caught_code([&] { inspected(table, {.sheet = folder_ / "no.png"}); }), "E217");
    EXPECT_FALSE(fs::exists(folder_ / "no.png"));
    EXPECT_THAT(inspected(table), HasSubstr("no command to train on it: no labels"));
    const fs::path single = folder_ / "single.h5";
    test::write_foreign(single, {{.path = "/x", .size = {5}, .bytes = test::random_bytes(5, 1)}});
    EXPECT_THAT(inspected(single),
                HasSubstr("'/x' has one value for each sample, and a model's input has several"));
}

TEST_F(InspectFiles, ShowsWhatTheLibraryDoesNotOpen) {
    const std::uint64_t offset = look_at_file({file_, {"/scan/y"}}).datasets[0].offset;
    std::string bytes = test::content_of(file_), layout = "\x03\x01";  // version, contiguous
    layout.append(reinterpret_cast<const char*>(&offset), sizeof offset);
    const std::size_t at = bytes.find(layout);
    ASSERT_NE(at, bytes.npos);
    bytes[at] = 9;  // as a newer library may write it
    write_file_atomically(file_, bytes);
    EXPECT_THAT(inspected(file_, {.columns = 200}),
                HasSubstr("\n  y  not streamed: HDF5 says: bad version number"));
    EXPECT_THAT(list_text(candidates_of(file_)),
                HasSubstr("/scan/y: a data set, which cannot be streamed: HDF5 says: bad version"));
}

TEST_F(InspectFiles, ReadsSomeRowsOfLargeDataAndSaysHowMany) {
    const fs::path large = folder_ / "large.h5";
    test::write_foreign(
        large,
        {{.path = "/x", .size = {5000, 4096}, .bytes = std::vector<std::byte>(5000 * 4096)}});
    EXPECT_THAT(inspected(large), HasSubstr("0 .. 0, mean 0 in 2,048 of 5,000 rows"));
}

TEST_F(InspectFiles, TakesSeveralFilesByTheFirst) {
    const fs::path other = folder_ / "n.h5";
    fs::copy_file(file_, other);
    const std::string text = inspected(file_.string() + "," + other.string());
    EXPECT_THAT(text, HasSubstr(", the first of 2 files\n"));
    EXPECT_THAT(text, HasSubstr("train --data " + folder_.path().string() + " --field"));
    EXPECT_EQ(test::caught_code([&] { inspected(folder_ / "none*.h5"); }), "E201");
    EXPECT_EQ(test::caught_code([&] { inspected(folder_.file("a.txt", "text")); }), "E216");
}

TEST_F(InspectFiles, SaysWhetherOtherFilesFitTheFirst) {
    const auto scan = [&](const char* name, std::uint64_t rows, std::uint64_t columns) {
        test::write_foreign(folder_ / name,
                            {{.path = "/x",
                              .size = {rows, columns},
                              .bytes = test::random_bytes(rows * columns, 1)}});
    };
    scan("s1.h5", 5, 4);
    EXPECT_THAT(inspected(folder_ / "s*.h5"), Not(HasSubstr("more file")));
    scan("s2.h5", 7, 4);
    EXPECT_THAT(inspected(folder_ / "s*.h5"),
                HasSubstr("\n1 more file: their data sets fit the first file's\n"));
    scan("s3.h5", 5, 3);
    const std::string place = (folder_ / "s3.h5").string();
    const std::string misfit = "E208: '/x' of '" + place + "' does not fit the other files";
    EXPECT_THAT(inspected(folder_ / "s*.h5"),
                testing::AllOf(HasSubstr("\n2 more files: " + misfit),
                               HasSubstr("\nno command to train on it: " + misfit)));
    folder_.file("s3.h5", "text");
    EXPECT_THAT(inspected(folder_ / "s*.h5"), HasSubstr(": E203: '" + place + "' is not HDF5"));
    fs::copy_file(file_, folder_ / "s3.h5", fs::copy_options::overwrite_existing);
    EXPECT_THAT(inspected(folder_ / "s*.h5"),
                HasSubstr(": E207: '" + place + "' has no data set '/x'"));
}

TEST_F(InspectFiles, OpensNoMoreThanSomeOfManyFiles) {
    for (int i = 100; i < 120; ++i)
        fs::copy_file(file_, folder_ / ("many" + std::to_string(i) + ".h5"));
    EXPECT_THAT(inspected(folder_ / "many*.h5"),
                HasSubstr("\n19 more files, of which 16 were opened: their data sets fit"));
}

// The same words as without fields, for the fields that are named.
TEST_F(InspectFiles, ShowsFieldsThatAreNamed) {
    const std::vector<FieldMapping> fields{{"images", "/scan/x", RowLayout::chw},
                                           {"labels", "/scan/y"}};
    const std::string text = inspected(file_, {.fields = fields});
    EXPECT_THAT(text, HasSubstr("samples    8 in"));
    EXPECT_THAT(text, HasSubstr("\nimages  u8 [8, 3, 6, 5]  chunks, 2 blocks of 360 B, "));
    EXPECT_THAT(text, HasSubstr("\nlabels: 3 classes in 8 rows\n  0  3  ####"));
    EXPECT_THAT(text, HasSubstr("--field labels=/scan/y --batch 8 --run 'runs/my scan'\n"));
}

TEST_F(InspectFiles, SaysWhatAJobGetsOfTheSuggestedFields) {
    EXPECT_THAT(inspected(file_, {.job = JobShape{.ranks = 2}}), HasSubstr("\n2 ranks "));
}

TEST_F(InspectFiles, ShowsEachGroupOnce) {
    const fs::path file = folder_ / "groups.h5";
    const auto at = [](const char* path) { return ForeignDataset{.path = path, .size = {2}}; };
    test::write_foreign(file, {at("/a/b/x"), at("/a/b/y"), at("/a/c/x"), at("/x")});
    EXPECT_THAT(inspected(file),
                testing::ContainsRegex("\na/\n  b/\n    x  .*\n    y  .*\n  c/\n    x  .*\nx  "));
}

TEST_F(InspectFiles, IsJsonForPrograms) {
    const InspectOptions options{.sheet = folder_ / "sheet.png", .as_json = true};
    const Json json = parse_json(inspected(file_, options), "it");
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
    const std::string text = inspected(options.output, {.sheet = folder_ / "packed.png"});
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
    const std::string text = inspected(options.output);
    EXPECT_THAT(text, HasSubstr("E213: "));
    EXPECT_THAT(text, HasSubstr("\nlabels: 10 classes in 60 rows\n"));
}

}  // namespace
}  // namespace lockstep
