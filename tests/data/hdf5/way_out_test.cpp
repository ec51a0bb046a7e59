// SPDX-License-Identifier: Apache-2.0
// Advice as commands; that they work shows tests/data/foreign_matrix.
#include "hdf5/contents.hpp"
#include "hdf5/shard_probe.hpp"
#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

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
        const auto error = test::caught([&] { check_is_whole_hdf5(file, expected_bytes); });
        return error ? error->fix() : "";
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
