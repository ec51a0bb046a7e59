// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/foreign.hpp"

#include "lockstep/core/split.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "support/unit.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

using test::encoded;
using test::error_of_opening;
using test::ForeignDataset;
using test::streamed;

const std::vector<FieldMapping> images_and_labels{{"images", "/x/data", RowLayout::hw},
                                                  {"labels", "/y"}};

using Foreign = test::ForeignFolder;

std::vector<std::byte> concat(const std::vector<std::vector<ForeignDataset>>& files,
                              std::size_t dataset) {
    std::vector<std::byte> all;
    for (const auto& file : files)
        all.insert(all.end(), file[dataset].bytes.begin(), file[dataset].bytes.end());
    return all;
}

TEST_F(Foreign, FilesOfAnyLengthStreamInTheOrderGiven) {
    const std::vector<std::vector<ForeignDataset>> content{test::images_and_labels(37, 1),
                                                           test::images_and_labels(100, 2),
                                                           test::images_and_labels(1, 3)};
    std::vector<fs::path> files;
    for (std::size_t i = 0; i < content.size(); ++i)
        files.push_back(write(fmt::format("{}.h5", content.size() - i), content[i]));
    const DatasetIndex index = DatasetIndex::open_foreign(files, images_and_labels);
    EXPECT_EQ(index.samples(), 138u);
    EXPECT_EQ(index.blocks(), (std::vector<RowBlock>{{0, 37}, {37, 100}, {137, 1}}));
    EXPECT_THAT(index.field("images").shape, ElementsAre(3, 5));
    EXPECT_EQ(index.field("images").layout, "HW");
    EXPECT_EQ(index.field("labels").classes(), 7);
    ASSERT_THAT(index.warnings(), SizeIs(1));
    for (const char* missing : {"no hashes", "not shuffled", "no mean"})
        EXPECT_THAT(index.warnings()[0], HasSubstr(missing));
    EXPECT_EQ(streamed(index, 0), concat(content, 0));
    EXPECT_EQ(streamed(index, 1), concat(content, 1));
    const auto bytes = index.serialize();
    for (const fs::path& file : files) fs::remove(file);
    EXPECT_EQ(DatasetIndex::deserialize(bytes), index) << "only rank 0 of the job opens files";
}

TEST_F(Foreign, FilesWithAUserBlockStreamLikeThoseWithout) {
    auto content = test::images_and_labels(37, 1);
    content[0].chunk = {5, 3, 5};
    const auto open = [&](const fs::path& path) {
        return DatasetIndex::open_foreign({path}, images_and_labels);
    };
    const DatasetIndex usual = open(write("usual.h5", content));
    for (const auto format : {test::Format::earliest, test::Format::newest})
        for (const hsize_t user_block : {512u, 2048u}) {
            const fs::path path = folder_ / "behind.h5";
            test::write_foreign(path, content, format, user_block);
            test::overwrite(path, 0, "MATLAB 7.3 MAT-file");
            const DatasetIndex index = open(path);
            for (const std::size_t field : {0u, 1u})
                EXPECT_EQ(streamed(index, field), streamed(usual, field)) << user_block;
            EXPECT_GE(index.stored_blocks(1)[0].offset, user_block);
            fs::resize_file(path, fs::file_size(path) - 1);
            EXPECT_EQ(caught_code([&] { open(path); }), "E204");
            fs::resize_file(path, user_block - 1);
            EXPECT_EQ(caught_code([&] { open(path); }), "E203");
        }
}

TEST_F(Foreign, EachSampleComesOnceInAShuffledEpoch) {
    std::vector<fs::path> files;
    for (std::uint64_t i = 0; i < 3; ++i)
        files.push_back(write(fmt::format("{}.h5", i), test::images_and_labels(50 + i, i)));
    const DatasetIndex index = DatasetIndex::open_foreign(files, images_and_labels);
    BatchStream stream(std::make_shared<const DatasetIndex>(index), {.seed = 5, .batch = 16});
    std::vector<int> seen(153);
    for (;;) {
        const Batch batch = stream.next();
        for (const std::uint64_t sample : batch.sample_ids) ++seen[sample];
        if (batch.next.epoch > 0) break;
    }
    EXPECT_THAT(seen, Each(1));
}

TEST_F(Foreign, SameFilesHaveTheSameDigestAndChangedOnesAnother) {
    const fs::path path = write("a.h5", test::images_and_labels(40, 1));
    const auto digest = [&] {
        return DatasetIndex::open_foreign({path}, images_and_labels).digest();
    };
    const std::string first = digest();
    EXPECT_EQ(digest(), first);
    const auto time = fs::last_write_time(path);
    write("a.h5", test::images_and_labels(41, 1));
    fs::last_write_time(path, time);
    EXPECT_NE(digest(), first);
    write("a.h5", test::images_and_labels(40, 1));
    fs::last_write_time(path, time);
    EXPECT_EQ(digest(), first);
    fs::last_write_time(path, time + std::chrono::nanoseconds(1000));
    EXPECT_NE(digest(), first);
}

TEST_F(Foreign, LabelsMayBeAColumn) {
    const ForeignDataset labels{.path = "/y",
                                .size = {4, 1},
                                .chunk = {3, 1},
                                .bytes = encoded<std::uint8_t>({0, 3, 3, 1})};
    const fs::path path = write("l.h5", {labels});
    const auto open = [&](const std::string& name, RowLayout layout = RowLayout::unstated) {
        return DatasetIndex::open_foreign({path}, {{name, "/y", layout}});
    };
    const DatasetIndex index = open("labels");
    EXPECT_THAT(index.fields()[0].shape, IsEmpty());
    EXPECT_THAT(index.fields()[0].class_counts, ElementsAre(1, 1, 0, 2));
    EXPECT_EQ(streamed(index, 0), labels.bytes);
    EXPECT_EQ(open("kinds", RowLayout::label).fields()[0].classes(), 4);
    const DatasetIndex values = open("labels", RowLayout::value);
    EXPECT_THAT(values.fields()[0].shape, ElementsAre(1));
    EXPECT_THAT(values.fields()[0].class_counts, IsEmpty());
    EXPECT_THAT(open("tokens").fields()[0].shape, ElementsAre(1));
}

TEST_F(Foreign, LabelsThatAreDamagedAfterOpeningAreNamed) {
    const ForeignDataset labels{.path = "/y",
                                .type = H5T_STD_I32LE,
                                .size = {6},
                                .bytes = encoded<std::int32_t>({0, 3, 3, 1, 2, 0})};
    const fs::path path = write("l.h5", {labels});
    const DatasetIndex index =
        DatasetIndex::open_foreign({path}, {{"labels", "/y", RowLayout::label}});
    test::overwrite(path, index.stored_blocks(0)[0].offset + 2 * 4, "\x04");
    const Error error = test::error_of([&] { streamed(index, 0); });
    EXPECT_EQ(error.code(), "E210");
    EXPECT_THAT(error.text(), HasSubstr("label 4 of sample 2"));
}

TEST_F(Foreign, ClassesOfPixelsAreCountedAndLookedAt) {
    const ForeignDataset masks{
        .path = "/m", .size = {2, 2, 2}, .bytes = encoded<std::uint8_t>({0, 3, 3, 1, 0, 0, 0, 2})};
    const fs::path path = write("m.h5", {masks});
    const auto open = [&](RowLayout layout) {
        return DatasetIndex::open_foreign({path}, {{"masks", "/m", layout}});
    };
    const DatasetIndex index = open(RowLayout::unstated);
    EXPECT_THAT(index.fields()[0].class_counts, ElementsAre(4, 1, 1, 2));
    EXPECT_EQ(open(RowLayout::hw).fields()[0].classes(), 0);
    test::overwrite(path, index.stored_blocks(0)[0].offset + 7, "\x04");
    EXPECT_THAT(caught_text([&] { streamed(index, 0); }),
                HasSubstr("E210: value 4 of 'masks' of sample 1"));
}

TEST_F(Foreign, WhatCannotBeStreamedIsRefusedWithTheReason) {
    const auto refused = [&](const ForeignDataset& data, const char* code, const char* why) {
        const Error error = error_of_opening({write("one.h5", {data})}, {{"images", data.path}});
        EXPECT_EQ(error.code(), code) << error.text();
        EXPECT_THAT(error.text(), HasSubstr(why));
    };
    const auto bytes = test::random_bytes(4096, 1);
    refused({.size = {}, .bytes = bytes}, "E234", "no dimensions");
    refused({.size = {0, 4}}, "E234", "no samples");
    refused({.size = {64, 64}}, "E234", "never written");
    refused({.size = {64, 64}, .chunk = {16, 64}}, "E234", "row 0 was never written");
    refused({.size = {64, 64}, .chunk = {64, 16}}, "E234", "never written");
    refused({.size = {64, 64},
             .chunk = {16, 64},
             .bytes = bytes,
             .filters = {{32008, {}}},
             .encode = test::stored_raw},
            "E212",
            "32008 (bitshuffle)");
    refused({.size = {64, 64},
             .chunk = {16, 64},
             .bytes = bytes,
             .encode =
                 [](auto, const auto& raw) {
                     return ForeignDataset::Stored{{raw.begin(), raw.end() - 1}, 0};
                 }},
            "E234",
            "wrong size");
    const fs::path path = write("one.h5", test::images_and_labels(9, 1));
    EXPECT_EQ(error_of_opening({path}, {{"images", "/x/dat"}}).code(), "E207");
    EXPECT_EQ(error_of_opening({path}, {{"images", "/x"}}).code(), "E207");
    EXPECT_EQ(error_of_opening({path}, {{"a", "/x/data", RowLayout::label}}).code(), "E235");
    EXPECT_EQ(error_of_opening({path}, {}).code(), "E235");
    EXPECT_EQ(error_of_opening({}, images_and_labels).code(), "E201");
    EXPECT_EQ(error_of_opening({folder_ / "none"}, images_and_labels).code(), "E201");
    EXPECT_EQ(error_of_opening({folder_.file("text.h5", "not HDF5")}, images_and_labels).code(),
              "E203");
}

TEST_F(Foreign, FilesThatDoNotFitTogetherAreNamed) {
    const fs::path a = write("a.h5", test::images_and_labels(9, 1));
    auto other = test::images_and_labels(9, 1);
    other[0].size = {9, 5, 3};
    const fs::path b = write("b.h5", other);
    const Error error = error_of_opening({a, b}, images_and_labels);
    EXPECT_EQ(error.code(), "E208");
    EXPECT_THAT(error.text(), HasSubstr("b.h5"));
    other = test::images_and_labels(9, 1);
    other[1] = test::images_and_labels(8, 1)[1];
    const fs::path c = write("c.h5", other);
    EXPECT_EQ(error_of_opening({c}, images_and_labels).code(), "E209");
}

TEST_F(Foreign, AFolderAFileOrAPatternNamesFiles) {
    const fs::path b = folder_.file("d/b.h5", ""), a = folder_.file("d/a.hdf5", "");
    folder_.file("d/notes.txt", "");
    EXPECT_THAT(foreign_files(folder_ / "d"), ElementsAre(a, b));
    EXPECT_THAT(foreign_files(b), ElementsAre(b));
    EXPECT_THAT(foreign_files(folder_ / "?/*.h5"), ElementsAre(b));
    const fs::path several = b.string() + "," + (folder_ / "d").string();
    EXPECT_THAT(foreign_files(several), ElementsAre(b, a, b));
    const fs::path comma = folder_.file("c,d.h5", "");
    EXPECT_THAT(foreign_files(comma), ElementsAre(comma)) << "a name may have a comma";
    EXPECT_EQ(caught_code([&] { foreign_files(b.string() + ",none.h5"); }), "E201");
    EXPECT_EQ(caught_code([&] { foreign_files(folder_ / "d/*.hdf"); }), "E201");
    EXPECT_EQ(caught_code([&] { foreign_files(folder_ / "e"); }), "E201");
}

TEST_F(Foreign, HiddenFilesOfAFolderAreCountedAndLeftOut) {
    const fs::path a = folder_.file("d/a.h5", "");
    for (const char* hidden : {"d/.a.h5", "d/._a.h5", "d/.notes"}) folder_.file(hidden, "");
    testing::internal::CaptureStderr();
    EXPECT_THAT(foreign_files(folder_ / "d"), ElementsAre(a));
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("2 hidden HDF5 file(s) in"));
    fs::remove(a);
    EXPECT_EQ(caught_code([&] { foreign_files(folder_ / "d"); }), "E201");
    EXPECT_THAT(foreign_files(folder_ / "d/.a.h5"), ElementsAre(folder_ / "d/.a.h5"));
}

TEST_F(Foreign, MappingsAreRead) {
    EXPECT_EQ(parse_field_mapping("images=/x/data"), (FieldMapping{"images", "/x/data"}));
    EXPECT_EQ(parse_field_mapping("images=x:CHW"), (FieldMapping{"images", "/x", RowLayout::chw}));
    EXPECT_EQ(parse_field_mapping("a=/x:1/y"), (FieldMapping{"a", "/x:1/y"}));
    EXPECT_EQ(parse_field_mappings("images=/x/data:CHW,labels=y"),
              (std::vector<FieldMapping>{{"images", "/x/data", RowLayout::chw}, {"labels", "/y"}}));
    EXPECT_EQ(parse_field_mapping("a=/x:cf"), (FieldMapping{"a", "/x", {}, CfValues{}}));
    EXPECT_EQ(parse_field_mapping("a=/x:CHW:cf=-1.5"),
              (FieldMapping{"a", "/x", RowLayout::chw, CfValues{-1.5}}));
    for (const char* text : {"a=/x:cf", "a=/x:CHW:cf=-1.5", "a=/x:value:cf=nan"})
        EXPECT_EQ(mapping_text(parse_field_mapping(text)), text);
    EXPECT_THAT(parse_field_mappings(""), IsEmpty());
    for (const std::string& text :
         split("images|=x|a=|a=:CHW|a b=/x|a=/x:cf:CHW|a=/x:cf=x|labels=/y:cf|a=/y:label:cf|", '|'))
        EXPECT_EQ(caught_code([&] { parse_field_mapping(text); }), "E235") << text;
}

TEST_F(Foreign, LayoutsAreReadInAnyCaseAndOthersAreRefused) {
    using enum RowLayout;
    const auto layout = [](const std::string& word) {
        return parse_field_mapping("images=/x:" + word).layout;
    };
    for (const char* word : {"CHW", "chw", "NCHW", "nchw"}) EXPECT_EQ(layout(word), chw) << word;
    for (const char* word : {"HWC", "hwc", "NHWC", "nhwc"}) EXPECT_EQ(layout(word), hwc) << word;
    for (const char* word : {"HW", "hw", "NHW"}) EXPECT_EQ(layout(word), hw) << word;
    EXPECT_EQ(layout("Label"), label);
    EXPECT_EQ(layout("value"), value);
    for (const char* word : {"banana", "", "N", "NN", "CWH", "NNCHW", "Nlabel"}) {
        const Error error = test::error_of([&] { layout(word); });
        EXPECT_EQ(error.code(), "E235") << word;
        EXPECT_THAT(error.text(), HasSubstr("these are CHW, HWC, HW, label, onehot, value"));
    }
    EXPECT_EQ(parse_field_mapping("a=/x:y:value"), (FieldMapping{"a", "/x:y", value}));
}

TEST_F(Foreign, SizesThatMayBeHeightWidthChannelsNeedALayoutAndItsDimensions) {
    const auto open = [&](std::vector<hsize_t> size, const std::string& name, RowLayout layout) {
        std::uint64_t bytes = 1;
        for (const hsize_t extent : size) bytes *= extent;
        const fs::path path =
            write("one.h5", {{.size = std::move(size), .bytes = test::random_bytes(bytes, 1)}});
        return error_of_opening({path}, {{name, "/x/data", layout}});
    };
    using enum RowLayout;
    const Error error = open({2, 32, 32, 13}, "images", unstated);
    EXPECT_EQ(error.code(), "E235");
    for (const char* wanted :
         {"32 x 32 x 13", "--field images=/x/data:HWC, or --field images=/x/data:CHW"})
        EXPECT_THAT(error.text(), HasSubstr(wanted));
    EXPECT_NE(open({2, 10, 12, 3}, "pictures", unstated).code(), "none");
    EXPECT_EQ(open({2, 3, 10, 12}, "images", unstated).code(), "none");
    for (const RowLayout layout : {chw, hwc, value})
        EXPECT_EQ(open({2, 32, 32, 13}, "images", layout).code(), "none");
    const fs::path path = write("one.h5", test::images_and_labels(9, 1));  // of 3 x 5
    for (const auto& [layout, code] :
         {std::pair(chw, "E235"), {hwc, "E235"}, {hw, "none"}, {value, "none"}})
        EXPECT_EQ(error_of_opening({path}, {{"images", "/x/data", layout}}).code(), code);
}

TEST(DataWords, AreTheSameForAllCommands) {
    fs::path data;
    std::string given;
    const Option where = data_option("data", data, ""), field = field_option("field", given, "");
    EXPECT_EQ(where.kind, OptionKind::list);
    where.assign({"a.h5,b.h5", "command line"});
    EXPECT_EQ(data, data_of_words({"a.h5", "b.h5"}));
    EXPECT_EQ(data_of_words({"d"}), "d");
    EXPECT_EQ(caught_code([&] { where.assign({"", "command line"}); }), "E103");
    field.assign({"images=/x:CHW,labels=/y", "command line"});
    EXPECT_EQ(given, "images=/x:CHW,labels=/y");
    EXPECT_EQ(mapping_text(parse_field_mapping("images=x:nchw")), "images=/x:CHW");
    EXPECT_EQ(mapping_text(parse_field_mapping("labels=/y")), "labels=/y");
    EXPECT_EQ(caught_code([&] { field.assign({"labels=/y,images", "command line"}); }), "E235");
    EXPECT_EQ(given, "images=/x:CHW,labels=/y") << "what is wrong is not taken";
}

}  // namespace
}  // namespace lockstep
