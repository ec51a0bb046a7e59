// SPDX-License-Identifier: Apache-2.0
#include "pictures.hpp"
#include "rows.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::error_of;
using test::jpeg_text;
using test::picture;
using test::png_text;
using test::pnm_text;
using test::values_of;
using testing::ElementsAre;
using testing::HasSubstr;

class MaskSource : public testing::Test {
  protected:
    std::unique_ptr<RowSource> source(const FolderOptions& options = {}) {
        return open_masked_folder(folder_ / "images", folder_ / "masks", options);
    }

    Error error(const FolderOptions& options = {}) {
        return error_of([&] {
            const auto all = source(options);
            for (std::uint64_t row = 0; row < all->samples(); ++row)
                values_of<std::uint8_t>(*all, 1, row);
        });
    }

    static std::string mask(const std::string& pixels) {
        return png_text(2, 2, PNG_COLOR_TYPE_GRAY, 8, pixels);
    }

    test::TempDir folder_;
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
    const auto all = source({.resize = ImageSize{4, 2}});
    EXPECT_THAT(values_of<std::uint8_t>(*all, 1, 0), ElementsAre(1, 9, 1, 9, 7, 3, 7, 3));
    EXPECT_THAT(values_of<std::uint8_t>(*source({.resize = ImageSize{1, 1}}), 1, 0),
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
    EXPECT_EQ(error({.resize = ImageSize{4, 4}}).code(), "E238");
    folder_.file("masks/a.png", png_text(2, 2, PNG_COLOR_TYPE_GRAY, 16, "00112233"));
    EXPECT_THAT(error().why(), HasSubstr("16 bits"));
    folder_.file("masks/a.png", jpeg_text(picture(2, 2, 1)));
    EXPECT_THAT(error().why(), HasSubstr("no PNG, TIFF or PGM file"));
    folder_.file("masks/a.png", "P5 2 2 3\n1234");
    EXPECT_THAT(error().why(), HasSubstr("largest value is not 255"));
}

}  // namespace
}  // namespace lockstep
