// SPDX-License-Identifier: Apache-2.0
// A build without libpng, libjpeg, libtiff and c-blosc: it says which library a file needs, and
// reads the rest.
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/sources.hpp"

#include "data/foreign_files.hpp"
#include "format/codec.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

using LeftOut = InFolder;

TEST_F(LeftOut, ImagesAreRefusedByTheNameOfTheLibrary) {
    struct Case {
        const char* file;
        std::string content;
        const char *library, *option;
    };
    for (const Case& one : {Case{"a/1.png", "\x89PNG\r\n\x1a\n", "libpng", "LOCKSTEP_WITH_PNG"},
                            Case{"a/1.png", "\xff\xd8\xff", "libjpeg", "LOCKSTEP_WITH_JPEG"},
                            Case{"a/1.png", {"MM\0*", 4}, "libtiff", "LOCKSTEP_WITH_TIFF"}}) {
        folder_.file(one.file, one.content);
        const Error error = test::error_of([&] { open_folder(folder_.path()); });
        EXPECT_EQ(error.code(), "E249");
        EXPECT_THAT(error.what(), HasSubstr("a/1.png"));
        EXPECT_THAT(error.why(), HasSubstr(std::string("built without ") + one.library));
        EXPECT_THAT(error.fix(), HasSubstr(one.option));
    }
}

// By name they are left out, as a folder may hold them beside what can be packed.
TEST_F(LeftOut, TiffIsCountedWithWhatReadsIt) {
    folder_.file("a/1.ppm", "P5 2 1 255\nab");
    for (const char* name : {"a/1.tif", "a/2.TIFF"}) folder_.file(name, "x");
    testing::internal::CaptureStderr();
    EXPECT_EQ(open_folder(folder_.path())->samples(), 1u);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said,
                HasSubstr("not PNG, JPEG, PPM or PGM by name are left out: 1 .tif, 1 .tiff; "
                          "build Lockstep where Debian's libtiff-dev is installed, or make PNG"));
    folder_.file("b/1.tif", "x");
    const Error error = test::error_of([&] { open_folder(folder_.path()); });
    EXPECT_THAT(error.why(), has("it has .tif files", "Debian's libtiff-dev is installed"));
}

TEST_F(LeftOut, BloscIsRefusedByItsName) {
    ASSERT_FALSE(reads_blosc());
    test::ForeignDataset data{.size = {8, 4}, .chunk = {8, 4}, .bytes = test::random_bytes(32, 1)};
    data.filters = {{32001, {2, 2, 1, 32, 5, 1, 1}}};
    data.encode = test::stored_raw;
    test::write_foreign(folder_ / "a.h5", {data});
    const Error error = test::error_of([&] {
        DatasetIndex::open_foreign({folder_ / "a.h5"}, {{"images", "/x/data"}});
    });
    EXPECT_EQ(error.code(), "E212");
    EXPECT_THAT(error.why(), has("built without c-blosc", "LOCKSTEP_WITH_BLOSC"));
}

}  // namespace
}  // namespace lockstep
