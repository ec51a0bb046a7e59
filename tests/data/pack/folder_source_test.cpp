// SPDX-License-Identifier: Apache-2.0
#include "pictures.hpp"
#include "rows.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

using test::error_of;
using test::jpeg_text;
using test::label_of;
using test::picture;
using test::png_text;
using test::pnm_text;
using test::values_of;

class FolderSource : public InFolder {
  protected:
    Error error(const FolderOptions& options = {}) {
        return error_of([&] { test::rows_of(*open_folder(folder_.path(), options)); });
    }
};

TEST_F(FolderSource, MakesAClassOfEachSubfolder) {
    const Image image = picture(6, 4, 3);
    folder_.file("dog/b.ppm", pnm_text(image));
    folder_.file("dog/a.PNG", png_text(picture(6, 4, 1)));
    folder_.file("cat/x.jpeg", jpeg_text(image));
    folder_.file("Zebra/z.png", png_text(image));
    folder_.file("dog/.hidden", "x");
    folder_.file("dog/notes.txt", "x");
    folder_.file("README", "x");
    const auto source = open_folder(folder_.path());
    EXPECT_EQ(source->samples(), 4u);
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(3, 6, 4));
    EXPECT_THAT(source->fields()[1].class_names, ElementsAre("Zebra", "cat", "dog"));
    for (std::int64_t row = 0; row < 4; ++row)
        EXPECT_EQ(label_of(*source, 1, static_cast<std::uint64_t>(row)),
                  std::min<std::int64_t>(row, 2));
    const auto planes = values_of<std::uint8_t>(*source, 0, 3);
    for (std::size_t p = 0; p < 24; ++p)
        for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(planes[c * 24 + p], image.pixels[p * 3 + c]);
    const auto grey = values_of<std::uint8_t>(*source, 0, 2);
    EXPECT_TRUE(std::equal(grey.begin(), grey.begin() + 24, grey.begin() + 48));
}

TEST_F(FolderSource, HasImagesOfTheFolderAndItsSubfoldersWithoutClasses) {
    for (const char* name : {"b.png", "a.png", "more/c.png"})
        folder_.file(name, png_text(picture(4, 4, 1)));
    const auto source = open_folder(folder_.path(), {.content = FolderContent::images});
    ASSERT_EQ(source->samples(), 3u);
    EXPECT_EQ(source->fields().size(), 1u);
    EXPECT_EQ(source->row_name(0), "a.png");
    EXPECT_EQ(source->row_name(2), "more/c.png");
}

TEST_F(FolderSource, FollowsLinksToFoldersAndFiles) {
    const TempDir elsewhere;
    elsewhere.file("real/a.png", png_text(picture(4, 4, 1)));
    fs::create_directory_symlink(elsewhere / "real", folder_ / "linked");
    fs::create_directory(folder_ / "own");
    fs::create_symlink(elsewhere / "real/a.png", folder_ / "own/b.png");
    EXPECT_EQ(open_folder(folder_.path())->samples(), 2u);
}

TEST_F(FolderSource, RefusesLoopsAndNestedFolders) {
    folder_.file("a/x.png", png_text(picture(4, 4, 1)));
    EXPECT_EQ(error().code(), "none");
    fs::create_symlink("self.png", folder_ / "a/self.png");
    EXPECT_THAT(error().why(), HasSubstr("leads nowhere"));
    fs::remove(folder_ / "a/self.png");
    fs::create_symlink(folder_ / "none", folder_ / "a/none.png");
    EXPECT_THAT(error().why(), HasSubstr("leads nowhere"));
    fs::remove(folder_ / "a/none.png");
    fs::create_directory_symlink("..", folder_ / "a/up");
    EXPECT_THAT(error().why(), HasSubstr("a folder within the folder of a class"));
    fs::remove(folder_ / "a/up");
    fs::create_directory_symlink(".", folder_ / "here");
    EXPECT_THAT(error().why(), HasSubstr("a folder within the folder of a class"));
}

TEST_F(FolderSource, NamesEmptyClassesAndMissingFolders) {
    EXPECT_THAT(error().why(), HasSubstr("no sub-folders"));
    folder_.file("a/x.png", png_text(picture(4, 4, 1)));
    fs::create_directory(folder_ / "b");
    EXPECT_THAT(error().text(), HasSubstr("b' cannot be packed\n  why: it has no images"));
    EXPECT_EQ(error_of([&] { open_folder(folder_ / "none"); }).code(), "E201");
}

TEST_F(FolderSource, CountsImagesThatItLeavesOutByTheirEnding) {
    folder_.file("a/1.png", png_text(picture(2, 2, 1)));
    for (const char* name : {"a/1.bmp", "a/2.BMP", "a/3.heic", "a/notes"}) folder_.file(name, "x");
    testing::internal::CaptureStderr();
    open_folder(folder_.path());
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("left out: 1 without ending, 2 .bmp, 1 .heic; make PNG"));
    EXPECT_THAT(said, HasSubstr("Debian: imagemagick"));
    folder_.file("b/1.bmp", "x");
    EXPECT_THAT(error().why(), HasSubstr("it has .bmp files"));
}

TEST_F(FolderSource, RefusesWebpWithACommandThatMakesPng) {
    folder_.file("a/1.png", png_text(picture(2, 2, 1)));
    folder_.file("a/2.WEBP", "x");
    EXPECT_EQ(error().code(), "E214");
    EXPECT_THAT(error().text(), HasSubstr("a/2.WEBP' cannot be packed\n  why: it is a WebP file"));
    EXPECT_THAT(error().fix(),
                HasSubstr("find -L " + folder_.path().string() + " -iname '*.webp'"));
    fs::rename(folder_ / "a/2.WEBP", folder_ / "a/2.jpg");
    folder_.file("a/1.png", "RIFF....WEBP");
    EXPECT_EQ(error().code(), "E237");
    EXPECT_THAT(error().why(), HasSubstr("it is a WebP file, which Lockstep does not read"));
}

TEST_F(FolderSource, NamesADamagedImage) {
    const std::string png = png_text(picture(16, 16, 3));
    folder_.file("a/1.png", png);
    folder_.file("a/2.png", png.substr(0, png.size() / 2));
    EXPECT_EQ(error().code(), "E237");
    EXPECT_THAT(error().what(), HasSubstr("a/2.png"));
    const std::string jpeg = jpeg_text(picture(16, 16, 3));
    folder_.file("a/2.png", jpeg.substr(0, jpeg.size() / 2));
    EXPECT_EQ(error().code(), "E237");
    folder_.file("a/2.png", "");
    EXPECT_EQ(error().code(), "E237");
}

TEST_F(FolderSource, WantsOneSizeUnlessItMayResize) {
    folder_.file("a/1.png", png_text(picture(8, 8, 3)));
    folder_.file("a/2.png", png_text(picture(8, 9, 3)));
    EXPECT_EQ(error().code(), "E238");
    EXPECT_THAT(error().what(), HasSubstr("a/2.png' is 8 x 9"));
    const auto source = open_folder(folder_.path(), {.images = {.resize = ImageSize{4, 5}}});
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(3, 4, 5));
    EXPECT_EQ(values_of<std::uint8_t>(*source, 0, 1).size(), 60u);
}

TEST_F(FolderSource, ChangesColoursOnlyWhenTold) {
    folder_.file("a/1.png", png_text(picture(8, 8, 1)));
    folder_.file("a/2.png", png_text(picture(8, 8, 3)));
    EXPECT_THAT(error().what(), HasSubstr("has colours"));
    EXPECT_EQ(error({.images = {.color = Color::rgb}}).code(), "none");
    EXPECT_EQ(error({.images = {.color = Color::gray}}).code(), "none");
    EXPECT_THAT(open_folder(folder_.path(), {.images = {.color = Color::gray}})->fields()[0].shape,
                ElementsAre(1, 8, 8));
}

TEST_F(FolderSource, IsKnownByNamesSizesAndBytes) {
    const auto print = [&](const FolderOptions& options = {}) {
        return open_folder(folder_.path(), options)->fingerprint();
    };
    folder_.file("a/1.png", png_text(picture(8, 8, 1)));
    const Hash128 first = print();
    EXPECT_EQ(print(), first);
    EXPECT_NE(print({.images = {.color = Color::rgb}}), first);
    EXPECT_NE(print({.images = {.resize = ImageSize{4, 4}}}), first);
    fs::rename(folder_ / "a/1.png", folder_ / "a/2.png");
    EXPECT_NE(print(), first);
    fs::rename(folder_ / "a/2.png", folder_ / "a/1.png");
    EXPECT_EQ(print(), first);
    folder_.file("a/1.png", png_text(picture(8, 8, 1)) + "x");
    EXPECT_NE(print(), first);
}

TEST_F(FolderSource, CountsImagesWhoseLowerBitsAreLost) {
    folder_.file("a/1.png", png_text(picture(1, 2, 1)));
    for (const char* name : {"a/2.png", "b/1.png"})
        folder_.file(name, png_text(1, 2, PNG_COLOR_TYPE_GRAY, 16, "abcd"));
    testing::internal::CaptureStderr();
    open_folder(folder_.path())->fingerprint();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("2 of 3 images have 16 bits per channel, the first of them '"));
    EXPECT_THAT(said, HasSubstr("a/2.png': the upper 8 are packed"));
}

TEST_F(FolderSource, CountsImagesWhoseTransparencyIsLost) {
    folder_.file("a/1.png", png_text(picture(1, 2, 3)));
    folder_.file("a/2.png", png_text(1, 2, PNG_COLOR_TYPE_RGB_ALPHA, 8, "abc\1def\xff"));
    folder_.file("b/1.png", png_text(1, 2, PNG_COLOR_TYPE_GRAY_ALPHA, 8, "a\1b\2"));
    testing::internal::CaptureStderr();
    open_folder(folder_.path())->fingerprint();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("2 of 3 images have an alpha channel, the first of them '"));
    EXPECT_THAT(said, HasSubstr("a/2.png': it is left out"));
    EXPECT_THAT(said, Not(HasSubstr("16 bits")));
}

TEST(ImageSize, IsHeightByWidth) {
    EXPECT_EQ(parse_image_size("resize", "3x8192"), (ImageSize{3, 8192}));
    for (const char* bad : {"", "3", "3x", "x3", "0x3", "-1x3", "3x9999", "3x4x5", "a x b"})
        EXPECT_EQ(error_of([&] { parse_image_size("resize", bad); }).code(), "E103") << bad;
}

class MaskSource : public InFolder {
  protected:
    std::unique_ptr<RowSource> source(const FolderOptions& options = {}) {
        return open_masked_folder(folder_ / "images", folder_ / "masks", options);
    }

    Error error(const FolderOptions& options = {}) {
        return error_of([&] { test::rows_of(*source(options), 1); });
    }

    static std::string mask(const std::string& pixels) {
        return png_text(2, 2, PNG_COLOR_TYPE_GRAY, 8, pixels);
    }
};

TEST_F(MaskSource, PairsFilesByNameAndKeepsNumbers) {
    folder_.file("images/a.jpg", jpeg_text(picture(2, 2, 3)));
    folder_.file("images/b.png", png_text(picture(2, 2, 3)));
    folder_.file("images/c.ppm", pnm_text(picture(2, 2, 3)));
    folder_.file("images/more/a.png", png_text(picture(2, 2, 3)));
    folder_.file("masks/a.png", mask({0, 1, 2, '\xff'}));
    // A palette of one bit, grey of two bits: neither is scaled nor coloured.
    folder_.file("masks/b_mask.png", png_text(2, 2, PNG_COLOR_TYPE_PALETTE, 1, "\x40\x80"));
    folder_.file("masks/c.png", png_text(2, 2, PNG_COLOR_TYPE_GRAY, 2, "\x70\x80"));
    folder_.file("masks/more/a.pgm", std::string("P5 2 2 255\n\x01\x02\x03\x04"));
    folder_.file("masks/.hidden", "x");
    const auto all = source();
    ASSERT_EQ(all->samples(), 4u);
    EXPECT_THAT(all->fields()[0].shape, ElementsAre(3, 2, 2));
    EXPECT_EQ(all->fields()[1].name, "masks");
    EXPECT_THAT(all->fields()[1].shape, ElementsAre(2, 2));
    EXPECT_THAT(values_of<std::uint8_t>(*all, 1, 0), ElementsAre(0, 1, 2, 255));
    EXPECT_THAT(values_of<std::uint8_t>(*all, 1, 1), ElementsAre(0, 1, 1, 0));
    EXPECT_THAT(values_of<std::uint8_t>(*all, 1, 2), ElementsAre(1, 3, 2, 0));
    EXPECT_THAT(values_of<std::uint8_t>(*all, 1, 3), ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(all->row_name(3), "more/a.png");
    const Hash128 before = all->fingerprint();
    folder_.file("masks/a.png", mask({0, 1, 2, 3}));
    EXPECT_NE(source()->fingerprint(), before);
}

TEST_F(MaskSource, ResizesByNearestPixels) {
    folder_.file("images/a.png", png_text(picture(2, 2, 1)));
    folder_.file("masks/a.png", mask({1, 9, 7, 3}));
    const auto all = source({.images = {.resize = ImageSize{4, 2}}});
    EXPECT_THAT(values_of<std::uint8_t>(*all, 1, 0), ElementsAre(1, 9, 1, 9, 7, 3, 7, 3));
    EXPECT_THAT(values_of<std::uint8_t>(*source({.images = {.resize = ImageSize{1, 1}}}), 1, 0),
                ElementsAre(3));
}

TEST_F(MaskSource, NumbersTheValuesThatAreNamed) {
    folder_.file("images/a.png", png_text(picture(2, 2, 1)));
    folder_.file("masks/a.png", mask({0, '\xff', '\xff', 0}));
    const auto all = source({.mask_values = parse_mask_values("0,255")});
    EXPECT_THAT(values_of<std::uint8_t>(*all, 1, 0), ElementsAre(0, 1, 1, 0));
    EXPECT_NE(all->fingerprint(), source()->fingerprint());
    EXPECT_THAT(error({.mask_values = {0, 1}}).text(), HasSubstr("a.png' has a pixel of 255"));
    for (const char* wrong : {"", "0,256", "0,0", "a"})
        EXPECT_EQ(error_of([&] { parse_mask_values(wrong); }).code(), "E103") << wrong;
}

TEST_F(MaskSource, NamesFilesWithoutPartner) {
    for (const char* name : {"images/a.png", "images/b.png"})
        folder_.file(name, png_text(picture(2, 2, 3)));
    folder_.file("masks/a.png", mask("0123"));
    EXPECT_THAT(error().text(),
                HasSubstr("images/b.png' cannot be packed\n  why: '" +
                          (folder_ / "masks").string() + "' has no mask of its name"));
    folder_.file("masks/b.png", mask("0123"));
    EXPECT_EQ(error().code(), "none");
    folder_.file("masks/c.png", mask("0123"));
    EXPECT_THAT(error().text(), HasSubstr("masks/c.png' cannot be packed\n  why: '"));
    fs::remove(folder_ / "masks/c.png");
    folder_.file("images/b.jpg", jpeg_text(picture(2, 2, 3)));
    EXPECT_THAT(error().why(), HasSubstr("its mask 'b.png' is that of 'b.jpg', too"));
    folder_.file("masks/a.pgm", "P5 2 2 255\n1234");
    EXPECT_THAT(error().why(), HasSubstr("has its name, too"));
}

TEST_F(MaskSource, RefusesColoursDepthOtherSizesAndLossyFiles) {
    folder_.file("images/a.png", png_text(picture(2, 2, 3)));
    folder_.file("masks/a.png", png_text(picture(2, 2, 3)));
    EXPECT_THAT(error().text(), HasSubstr("three channels"));
    EXPECT_THAT(error().fix(), HasSubstr("mogrify -channel R -separate"));
    folder_.file("masks/a.png", png_text(picture(2, 3, 1)));
    EXPECT_THAT(error().text(), HasSubstr("a.png' is 2 x 3\n  why: its image 'a.png' is 2 x 2"));
    EXPECT_EQ(error({.images = {.resize = ImageSize{4, 4}}}).code(), "E238");
    folder_.file("masks/a.png", png_text(2, 2, PNG_COLOR_TYPE_GRAY, 16, "00112233"));
    EXPECT_THAT(error().why(), HasSubstr("16 bits"));
    folder_.file("masks/a.png", jpeg_text(picture(2, 2, 1)));
    EXPECT_THAT(error().why(), HasSubstr("no PNG, TIFF or PGM file"));
    folder_.file("masks/a.png", "P5 2 2 3\n1234");
    EXPECT_THAT(error().why(), HasSubstr("largest value is not 255"));
}

}  // namespace
}  // namespace lockstep
