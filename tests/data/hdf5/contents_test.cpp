// SPDX-License-Identifier: Apache-2.0
#include "hdf5/contents.hpp"

#include "data/foreign_files.hpp"
#include "hdf5/shard_probe.hpp"
#include "streamed.hpp"
#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::ForeignDataset;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Images with their channels last, their labels, text, and numbers that were never written.
class Contents : public testing::Test {
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
        return test::caught_text([&] { DatasetIndex::open(file_, fields); });
    }

    test::TempDir folder_;
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
        EXPECT_THAT(test::caught_text([&] { DatasetIndex::open(folder_ / other, {}); }),
                    HasSubstr("is no data set"));
}

TEST_F(Contents, AreListedWhereAFieldIsMissing) {
    const std::string near = error_with({{"images", "/x/date"}});
    EXPECT_THAT(near, HasSubstr("E207"));
    EXPECT_THAT(near, HasSubstr("\n    /deep/y: u8 [8]\n"));
    EXPECT_THAT(near, HasSubstr("did you mean '/x/data'? Then give --field images=/x/data"));
    EXPECT_THAT(error_with({{"images", "/somewhere/else"}}),
                HasSubstr("such as --field images=/x/data:HWC --field labels=/deep/y"));
}

TEST_F(Contents, OfAPlaceThatCannotBeEnteredAreNotSaidToBeMissing) {
    fs::create_symlink("loop", folder_ / "loop");
    const Error error = test::error_of([&] { DatasetIndex::open(folder_ / "loop", {}); });
    EXPECT_THAT(error.what(), HasSubstr("Too many levels"));
}

TEST_F(Contents, OfOtherFieldsAreNotMeant) {
    const std::string text =
        error_with({{"images", "/x/data", RowLayout::hwc}, {"labels", "/x/dat"}});
    EXPECT_THAT(text, Not(HasSubstr("did you mean")));
    EXPECT_THAT(text, HasSubstr("--field labels=/deep/y"));
}

TEST_F(Contents, ThatLieInAnotherFileAreJoined) {
    const fs::path other = folder_ / "labels.h5";
    test::write_foreign(other,
                        {{.path = "/z", .size = {8, 1, 1, 1}, .bytes = test::random_bytes(8, 2)}});
    const std::vector<FieldMapping> fields{{"images", "/x/data", RowLayout::hwc}, {"labels", "/z"}};
    const Error error = test::error_of_opening({file_, other}, fields);
    EXPECT_EQ(error.code(), "E207");
    EXPECT_THAT(error.why(), HasSubstr("labels.h5' has it; files of --data have all fields"));
    EXPECT_THAT(error.fix(), HasSubstr(" --field images=/x/data:HWC --field labels="));
    EXPECT_THAT(error.fix(), testing::EndsWith("labels.h5:/z"));
}

TEST_F(Contents, ThatCanBePackedComeWithTheCommand) {
    EXPECT_THAT(error_with({{"features", "/unwritten"}, {"labels", "/deep/y"}}),
                HasSubstr("it's.h5' cannot be streamed"));
    EXPECT_THAT(error_with({{"features", "/unwritten"}, {"labels", "/deep/y"}}),
                HasSubstr("it'\\''s.h5' --field features=/unwritten --field labels=/deep/y "
                          "--out NAME"));
    EXPECT_THAT(error_with({{"images", "/x/data", RowLayout::hwc}, {"more", "/unwritten"}}),
                HasSubstr("--field images=/x/data:HWC --field more=/unwritten --out NAME"));
}

TEST_F(Contents, ThatCannotBePackedEitherComeWithoutOne) {
    const std::string text = error_with({{"names", "/names"}, {"labels", "/deep/y"}});
    EXPECT_THAT(text, HasSubstr("cannot be packed either"));
    EXPECT_THAT(text, Not(HasSubstr("lockstep data pack")));
}

TEST_F(Contents, ThatAreTextsAreSuggestedAsLabelsWhereNoNumbersAre) {
    ForeignDataset text{
        .path = "/names", .type = H5T_C_S1, .size = {8}, .bytes = test::random_bytes(8, 2)};
    test::write_foreign(file_, {{.size = {8, 9}, .bytes = test::random_bytes(72, 1)}, text});
    EXPECT_THAT(error_with({}), HasSubstr("--field features=/x/data --field labels=/names"));
}

// Advice as commands; that they work shows tests/data/foreign_matrix.

TEST(WayOut, NamesAllFilesAndFieldsOfAPack) {
    const AskedFiles asked{
        {"a.h5", "b c.h5"}, {{"images", "/x"}, {"labels", "/y"}}, ImageLayout::hwc};
    EXPECT_EQ(pack_command(asked),
              "lockstep data pack --hdf5 a.h5 --hdf5 'b c.h5' --field images=/x --field labels=/y "
              "--layout hwc --out NAME");
    EXPECT_THAT(pack_command(asked, Links::followed), EndsWith(" --follow-links --out NAME"));
}

TEST(WayOut, WritesNumbersOfSeveralFilesAnew) {
    const AskedFiles asked{{"a.h5", "b.h5"}, {{"images", "/x"}, {"labels", "/y"}}};
    const std::string way = way_past(Obstacle::elements, asked, 1, {.has_numbers = true});
    EXPECT_THAT(way, HasSubstr(": for f in a.h5 b.h5; do python3 -c '"));
    EXPECT_THAT(way, EndsWith("' NAME \"$f\" /y /x; done"));
}

TEST(WayOut, KnowsWhereFiltersAreFromIfItNamesACommand) {
    const AskedFiles asked{{"a.h5"}, {{"images", "/x"}}};
    EXPECT_THAT(way_past_filter(32026, asked), StartsWith("after 'pip install hdf5plugin': HDF5_"));
    EXPECT_THAT(way_past_filter(305, asked), EndsWith("--complib zlib a.h5 NAME.h5"));
    EXPECT_THAT(way_past_filter(32123, asked), EndsWith("a plug-in of libhdf5 for filter 32123"));
}

TEST(WayOut, ToHdf5IsACommandWhereTheFirstBytesSayWhich) {
    const test::TempDir folder;
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
