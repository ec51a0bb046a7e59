// SPDX-License-Identifier: Apache-2.0
// Fields that lie in several files, and what files have where a field is missing.
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sources.hpp"

#include "data/foreign_files.hpp"
#include "data/samples.hpp"
#include "hdf5/contents.hpp"
#include "hdf5/shard_probe.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

using test::ForeignDataset;
using test::streamed;

// Images in one or several files, and labels in others.
class FieldFiles : public test::ForeignFolder {
  protected:
    std::vector<FieldMapping> fields(const std::string& labels) const {
        std::vector<FieldMapping> all{{"images", "/x/data", RowLayout::hw}, {"labels", "/y"}};
        all[1].file = folder_ / labels;
        return all;
    }
    // What one file with both has.
    DatasetIndex in_one() {
        const fs::path path = write("one.h5", both_);
        return DatasetIndex::open_foreign({path},
                                          {{"images", "/x/data", RowLayout::hw}, {"labels", "/y"}});
    }

    std::vector<ForeignDataset> both_ = test::images_and_labels(57, 1);
};

TEST_F(FieldFiles, StreamAsIfTheyWereOne) {
    const DatasetIndex one = in_one();
    const fs::path x = write("x.h5", {both_[0]});
    write("y.h5", {both_[1]});
    const DatasetIndex index = DatasetIndex::open_foreign({x}, fields("y.h5"));
    EXPECT_EQ(index.blocks(), one.blocks()) << "the order is the same";
    EXPECT_EQ(index.field("labels").class_counts, one.field("labels").class_counts);
    EXPECT_EQ(streamed(index, 0), streamed(one, 0));
    EXPECT_EQ(streamed(index, 1), streamed(one, 1));
    EXPECT_EQ(DatasetIndex::deserialize(index.serialize()), index);
    EXPECT_THAT(row_text(index, index.field("labels"), 17), HasSubstr("row 17 of 'y.h5:/y' in '"));
}

TEST_F(FieldFiles, JoinSeveralFilesByTheNumbersOfRows) {
    const auto first = test::images_and_labels(20, 2), second = test::images_and_labels(37, 3);
    const std::vector<fs::path> x{write("x-1.h5", {first[0]}), write("x-2.h5", {second[0]})};
    write("y.h5", {both_[1]});
    const DatasetIndex index = DatasetIndex::open_foreign(x, fields("y.h5"));
    EXPECT_EQ(index.samples(), 57u);
    EXPECT_EQ(streamed(index, 1), streamed(in_one(), 1)) << "one file of labels for two of images";
    write("z-1.h5", {second[1]}), write("z-2.h5", {first[1]});
    const DatasetIndex by_pattern = DatasetIndex::open_foreign(x, fields("z-*.h5"));
    std::vector<std::byte> labels = second[1].bytes;
    labels.insert(labels.end(), first[1].bytes.begin(), first[1].bytes.end());
    EXPECT_EQ(streamed(by_pattern, 1), labels);
    const auto packed = open_hdf5(x, fields("z-*.h5"));
    EXPECT_EQ(packed->samples(), 57u);
}

TEST_F(FieldFiles, MustAgreeInTheirNumberOfRows) {
    const fs::path x = write("x.h5", {both_[0]});
    const fs::path y = write("y.h5", {test::images_and_labels(56, 1)[1]});
    for (const Error& error : {test::error_of_opening({x}, fields("y.h5")),
                               test::error_of([&] { open_hdf5({x}, fields("y.h5")); })}) {
        EXPECT_EQ(error.code(), "E209");
        for (const std::string& words :
             {x.string(), y.string(), std::string("57"), std::string("56")})
            EXPECT_THAT(error.what(), HasSubstr(words));
    }
}

TEST_F(FieldFiles, AreOtherFilesThanThoseOfTheData) {
    const fs::path one = write("one.h5", both_);
    EXPECT_EQ(DatasetIndex::open_foreign({one}, fields("one.h5")).samples(), 57u)
        << "the same files";
    const fs::path two = write("two.h5", {both_[0]});
    EXPECT_EQ(test::error_of_opening({one, two}, fields("one.h5")).code(), "E235");
    const auto open_test = [&] { DatasetIndex::open_test(one, fields("y.h5"), {}); };
    EXPECT_EQ(caught_code(open_test), "E105") << "not the labels of other samples";
}

TEST(FieldFilesText, NamesTheFileBeforeThePath) {
    const FieldMapping mapping = parse_field_mapping("labels=a/y-*.h5:/y:label");
    EXPECT_EQ(mapping.file, "a/y-*.h5");
    EXPECT_EQ(mapping.hdf5_path, "/y");
    EXPECT_EQ(mapping.layout, RowLayout::label);
    EXPECT_EQ(mapping_text(mapping), "labels=a/y-*.h5:/y:label");
    EXPECT_EQ(parse_field_mapping("x=/abs/y.h5:/g/y").file, "/abs/y.h5");
    EXPECT_EQ(parse_field_mapping("x=/a:b:CHW").file, "") << "a colon in the path of a data set";
}

TEST(PackedSets, StreamOneAfterAnotherWithStatisticsOfAll) {
    const TempDir folder;
    std::vector<fs::path> sets;
    std::vector<std::byte> rows[2];
    for (const std::uint64_t count : {70, 41}) {
        const auto both = test::images_and_labels(count, count);
        const fs::path file = test::write_foreign(folder / "x.h5", both);
        const auto source = open_hdf5({file}, {{"images", "/x/data"}, {"labels", "/y"}});
        PackOptions options{.output = folder / std::to_string(count), .shards = 2};
        options.block_rows = 16;
        options.shuffle_seed.reset();
        sets.push_back(pack_dataset(*source, options).path);
        for (std::size_t f = 0; f < 2; ++f)
            rows[f].insert(rows[f].end(), both[f].bytes.begin(), both[f].bytes.end());
    }
    const auto both_sets = sets[0].string() + "," + sets[1].string();
    const DatasetIndex index = DatasetIndex::open(both_sets, {});
    EXPECT_EQ(index.samples(), 111u);
    for (std::size_t f = 0; f < 2; ++f) EXPECT_EQ(streamed(index, f), rows[f]);
    EXPECT_EQ(DatasetIndex::deserialize(index.serialize()), index);
    double sum = 0, squares = 0;
    for (const std::byte pixel : rows[0]) {
        const double value = std::to_integer<int>(pixel) / 255.0;
        sum += value;
        squares += value * value;
    }
    const double mean = sum / static_cast<double>(rows[0].size());
    const double variance = squares / static_cast<double>(rows[0].size()) - mean * mean;
    EXPECT_NEAR(index.field("images").mean.at(0), mean, 1e-12);
    EXPECT_NEAR(index.field("images").std.at(0), std::sqrt(variance), 1e-12);
    const auto& counts = index.field("labels").class_counts;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0u), 111u);
    EXPECT_THAT(row_text(index, index.field("labels"), 70), HasSubstr("row 0 of '/data/labels'"));
    const auto twice = [&] { DatasetIndex::open(sets[0].string() + "," + sets[0].string(), {}); };
    EXPECT_EQ(caught_code(twice), "E106");
    test::write_foreign(folder / "x.h5", test::images_and_labels(9, 1));
    const auto other = open_hdf5({folder / "x.h5"}, {{"images", "/x/data"}});
    const fs::path alone = pack_dataset(*other, {.output = folder / "alone"}).path;
    const auto unlike = [&] { DatasetIndex::open(sets[0].string() + "," + alone.string(), {}); };
    EXPECT_EQ(caught_code(unlike), "E208");
}

// Columns as MATLAB and libraries of images write them.
TEST_F(FieldFiles, ColumnsOfLabelsMayLieAcross) {
    const DatasetIndex one = in_one();
    for (const std::vector<hsize_t>& size : {std::vector<hsize_t>{1, 57}, {57, 1}, {57, 1, 1, 1}})
        for (const bool is_chunked : {false, true}) {
            ForeignDataset labels = both_[1];
            labels.size = size;
            labels.chunk.clear();
            if (is_chunked) {
                labels.chunk = size;
                std::ranges::replace(labels.chunk, hsize_t{57}, hsize_t{10});
            }
            const fs::path path = write("across.h5", {both_[0], labels});
            const std::vector<FieldMapping> mappings{{"images", "/x/data", RowLayout::hw},
                                                     {"labels", "/y"}};
            const DatasetIndex index = DatasetIndex::open_foreign({path}, mappings);
            EXPECT_EQ(index.field("labels"), one.field("labels"));
            EXPECT_EQ(streamed(index, 1), streamed(one, 1));
            EXPECT_EQ(open_hdf5({path}, mappings)->fields()[1].shape.size(), 0u);
            fs::remove(path);
        }
}

TEST_F(FieldFiles, TargetsLoseTheirLastOnes) {
    ForeignDataset targets{.path = "/t",
                           .type = H5T_IEEE_F32LE,
                           .size = {57, 2, 1, 1},
                           .chunk = {10, 1, 1, 1},
                           .bytes = test::random_bytes(57 * 8, 5)};
    const fs::path path = write("t.h5", {both_[0], targets});
    const std::vector<FieldMapping> mappings{{"images", "/x/data", RowLayout::hw},
                                             {"targets", "/t"}};
    const DatasetIndex index = DatasetIndex::open_foreign({path}, mappings);
    EXPECT_THAT(index.field("targets").shape, ElementsAre(2));
    EXPECT_EQ(streamed(index, 1), targets.bytes);
    EXPECT_THAT(open_hdf5({path}, mappings)->fields()[1].shape, ElementsAre(2));
}

// Images with their channels last, their labels, text, and numbers that were never written.
class Contents : public InFolder {
  protected:
    Contents() {
        ForeignDataset labels{.path = "/deep/y", .size = {8}, .bytes = test::random_bytes(8, 2)};
        ForeignDataset text{.path = "/names", .type = H5T_C_S1, .size = {8}, .bytes = labels.bytes};
        test::write_foreign(file_,
                            {{.size = {8, 9, 7, 3}, .bytes = test::random_bytes(8 * 189, 1)},
                             labels,
                             text,
                             {.path = "/unwritten", .size = {8, 2}, .bytes = {}}});
    }
    std::string error_with(const std::vector<FieldMapping>& fields) const {
        return caught_text([&] { DatasetIndex::open(file_, fields); });
    }

    fs::path file_ = folder_ / "it's.h5";
};

TEST_F(Contents, AreListedWhereNoFieldsAreGiven) {
    for (const fs::path& where : {file_, folder_.path(), folder_ / "*.h5"}) {
        const Error error = test::error_of([&] { DatasetIndex::open(where, {}); });
        EXPECT_EQ(error.code(), "E216") << where;
        for (const char* line : {"\n    /x/data: u8 [8, 9, 7, 3]\n",
                                 "\n    /deep/y: u8 [8]\n",
                                 "\n    /names: text [8]\n",
                                 "/unwritten: u8 [8, 2], which cannot be streamed: "})
            EXPECT_THAT(error.text(), HasSubstr(line));
        EXPECT_THAT(error.fix(), EndsWith("--field images=/x/data:HWC --field labels=/deep/y"));
    }
    folder_.file("other/notes.csv", "a,b\n");
    for (const char* other : {"other", "other/notes.csv"})
        EXPECT_THAT(caught_text([&] { DatasetIndex::open(folder_ / other, {}); }),
                    HasSubstr("is no data set"));
}

TEST_F(Contents, AreListedWhereAFieldIsMissingUnlessTheyAreOfOtherFields) {
    const std::string near = error_with({{"images", "/x/date"}});
    EXPECT_THAT(near, HasSubstr("E207"));
    EXPECT_THAT(near, HasSubstr("\n    /deep/y: u8 [8]\n"));
    EXPECT_THAT(near, HasSubstr("did you mean '/x/data'? Then give --field images=/x/data"));
    EXPECT_THAT(error_with({{"images", "/somewhere/else"}}),
                HasSubstr("such as --field images=/x/data:HWC --field labels=/deep/y"));
    const std::string text =
        error_with({{"images", "/x/data", RowLayout::hwc}, {"labels", "/x/dat"}});
    EXPECT_THAT(text, has(Not(HasSubstr("did you mean")), "--field labels=/deep/y"));
}

TEST_F(Contents, OfAPlaceThatCannotBeEnteredAreNotSaidToBeMissing) {
    fs::create_symlink("loop", folder_ / "loop");
    const Error error = test::error_of([&] { DatasetIndex::open(folder_ / "loop", {}); });
    EXPECT_THAT(error.what(), HasSubstr("Too many levels"));
}

TEST_F(Contents, ThatLieInAnotherFileAreJoined) {
    const fs::path other = test::write_foreign(
        folder_ / "labels.h5",
        {{.path = "/z", .size = {8, 1, 1, 1}, .bytes = test::random_bytes(8, 2)}});
    const std::vector<FieldMapping> fields{{"images", "/x/data", RowLayout::hwc}, {"labels", "/z"}};
    const Error error = test::error_of_opening({file_, other}, fields);
    EXPECT_EQ(error.code(), "E207");
    EXPECT_THAT(error.why(), HasSubstr("labels.h5' has it; files of --data have all fields"));
    EXPECT_THAT(error.fix(), HasSubstr(" --field images=/x/data:HWC --field labels="));
    EXPECT_THAT(error.fix(), EndsWith("labels.h5:/z"));
}

TEST_F(Contents, ComeWithTheCommandOnlyIfTheyCanBePacked) {
    EXPECT_THAT(error_with({{"features", "/unwritten"}, {"labels", "/deep/y"}}),
                has("it's.h5' cannot be streamed",
                    "it'\\''s.h5' --field features=/unwritten --field labels=/deep/y "
                    "--out NAME"));
    EXPECT_THAT(error_with({{"images", "/x/data", RowLayout::hwc}, {"more", "/unwritten"}}),
                HasSubstr("--field images=/x/data:HWC --field more=/unwritten --out NAME"));
    const std::string text = error_with({{"names", "/names"}, {"labels", "/deep/y"}});
    EXPECT_THAT(text,
                has("fix: name another data set of it, such as --field images=/x/data",
                    Not(HasSubstr("lockstep data pack"))));
}

TEST_F(Contents, ThatAreTextsAreSuggestedAsLabelsWhereNoNumbersAre) {
    ForeignDataset text{
        .path = "/names", .type = H5T_C_S1, .size = {8}, .bytes = test::random_bytes(8, 2)};
    test::write_foreign(file_, {{.size = {8, 9}, .bytes = test::random_bytes(72, 1)}, text});
    EXPECT_THAT(error_with({}), HasSubstr("--field features=/x/data --field labels=/names"));
}

// Advice as commands; that they work shows tests/data/foreign_matrix.

TEST(WayOut, NamesAllFilesAndFieldsOfAPackOrWritesThemAnew) {
    const AskedFiles asked{
        {"a.h5", "b c.h5"}, {{"images", "/x"}, {"labels", "/y"}}, ImageLayout::hwc};
    EXPECT_EQ(pack_command(asked),
              "lockstep data pack --hdf5 a.h5 --hdf5 'b c.h5' --field images=/x --field labels=/y "
              "--layout hwc --out NAME");
    EXPECT_THAT(pack_command(asked, Links::followed), EndsWith(" --follow-links --out NAME"));
    const AskedFiles several{{"a.h5", "b.h5"}, {{"images", "/x"}, {"labels", "/y"}}};
    const std::string way = way_past(Obstacle::elements, several, 1, {.has_numbers = true});
    EXPECT_THAT(way, HasSubstr(": for f in a.h5 b.h5; do python3 -c '"));
    EXPECT_THAT(way, EndsWith("' NAME \"$f\" /y /x; done"));
    const AskedFiles one{{"a.h5"}, {{"images", "/x"}}};
    EXPECT_THAT(way_past_filter(32026, one), StartsWith("after 'pip install hdf5plugin': HDF5_"));
    EXPECT_THAT(way_past_filter(305, one), EndsWith("--complib zlib a.h5 NAME.h5"));
    EXPECT_THAT(way_past_filter(32123, one), EndsWith("a plug-in of libhdf5 for filter 32123"));
}

TEST(WayOut, ToHdf5IsACommandWhereTheFirstBytesSayWhich) {
    const TempDir folder;
    const auto fix = [&](std::string_view start, std::uint64_t expected_bytes = 0) {
        const fs::path file = folder.file("a b", std::string(start) + std::string(99, 'x'));
        return test::error_of([&] { check_is_whole_hdf5(file, expected_bytes); }).fix();
    };
    const std::string file = "'" + (folder / "a b").string() + "'";
    EXPECT_EQ(fix("CDF\x01"), "make HDF5 of it: nccopy -k nc4 " + file + " NAME.h5");
    EXPECT_EQ(fix("\x1f\x8b"), "expand it: gunzip <" + file + " >NAME.h5");
    EXPECT_EQ(fix("\x93NUMPY"),
              "make shards of it: lockstep data pack --npy values=" + file + " --out NAME");
    EXPECT_THAT(fix("<html>"), StartsWith("copy it again"));
    EXPECT_THAT(fix("CDF\x01", 99), StartsWith("copy it again")) << "a shard was HDF5";
}

}  // namespace
}  // namespace lockstep
