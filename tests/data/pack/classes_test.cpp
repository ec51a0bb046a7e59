// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/check.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sources.hpp"

#include "check/inspection.hpp"
#include "data/samples.hpp"
#include "pack/npy_header.hpp"
#include "rows.hpp"
#include "support/unit.hpp"

#include <cmath>

namespace lockstep {
namespace {

using testing::DoubleNear;

// A data set of one field, packed from an NPY file in the order it has.
class Classes : public InFolder {
  protected:
    template <class T>
    Field packed(const std::string& name,
                 ElementType type,
                 const std::vector<std::uint64_t>& shape,
                 const std::vector<T>& values) {
        const auto file = folder_.file("x.npy", test::npy_text(type, shape, values));
        fs::remove_all(options_.output);
        const auto source = open_npy({{name, file.string()}});
        return pack_dataset(*source, options_).manifest.fields.at(0);
    }
    Field packed_masks(const std::vector<std::int32_t>& pixels) {
        return packed("masks", ElementType::i32, {pixels.size() / 4, 2, 2}, pixels);
    }
    std::string packing_error(const std::vector<std::int32_t>& pixels) {
        return caught_text([&] { packed_masks(pixels); });
    }
    // What reading all of it says.
    std::string reading_error() const {
        return caught_text([&] {
            BatchStream stream(test::open_index(options_.output),
                               {.order = OrderKind::sequential, .batch = 2});
            stream.next();
        });
    }

    PackOptions options_{.output = folder_ / "packed", .shuffle_seed = {}};
};

TEST_F(Classes, AreCountedForEachPixelAndEachToken) {
    const Field masks =
        packed<std::uint8_t>("masks", ElementType::u8, {2, 2, 2}, {0, 0, 3, 1, 0, 0, 0, 3});
    EXPECT_THAT(masks.class_counts, ElementsAre(5, 1, 0, 2));
    EXPECT_EQ(masks.type, ElementType::u8);
    EXPECT_EQ(test::open_index(options_.output)->field("masks").classes(), 4);
    const Field tokens =
        packed<std::int64_t>("tokens", ElementType::i64, {2, 3}, {2, 1, 1, 2, 2, 0});
    EXPECT_THAT(tokens.class_counts, ElementsAre(1, 2, 3));
    EXPECT_EQ(tokens.type, ElementType::i64);
    const Field others = packed<std::int32_t>("words", ElementType::i32, {1, 3}, {2, 1, -1});
    EXPECT_THAT(others.class_counts, IsEmpty()) << "the name says what has classes";
    const Field flat = packed<float>("masks", ElementType::f32, {1, 2, 2}, {0, 0.5, 1, 1});
    EXPECT_THAT(flat.class_counts, IsEmpty()) << "shares are no classes";
    for (const std::vector<std::uint64_t>& one :
         {std::vector<std::uint64_t>{2, 2, 2, 1}, std::vector<std::uint64_t>{2, 1, 2, 2}}) {
        const Field plane =
            packed<std::uint8_t>("masks", ElementType::u8, one, {0, 0, 3, 1, 0, 0, 0, 3});
        EXPECT_THAT(plane.shape, ElementsAre(2, 2)) << "a dimension of 1 is left out";
        EXPECT_THAT(plane.class_counts, ElementsAre(5, 1, 0, 2));
    }
}

TEST_F(Classes, MayHaveNamesThatAreNotUtf8AndAreAtLeastAsManyAsAreSaid) {
    const auto table = folder_.file("t.csv", "x,kind\n1,caf\xe9\n2,caf\xe8\n3,\xff\n");
    pack_dataset(*open_csv(table, {.label = "kind"}), options_);
    EXPECT_THAT(test::open_index(options_.output)->field("labels").class_names,
                ElementsAre("caf\xe8", "caf\xe9", "\xff"));
    EXPECT_THAT(verify_dataset(options_.output), IsEmpty());
    options_.classes = 6;
    EXPECT_THAT(packed_masks({0, 1, 1, 2}).class_counts, ElementsAre(1, 2, 1, 0, 0, 0));
}

TEST_F(Classes, OutOfRangeAreNamed) {
    EXPECT_THAT(packing_error({0, 1, 2, 3, 0, 1, -1, 3}),
                HasSubstr("E210: value -1 of 'masks' of input sample 1 is out of range"));
    options_.classes = 3;
    EXPECT_THAT(packing_error({0, 1, 2, 0, 0, 1, 2, 3}),
                HasSubstr("value 3 of 'masks' of input sample 1 is out of range\n"
                          "  why: 3 classes are numbered 0 to 2"));
    options_.classes = 0;
    EXPECT_THAT(caught_text([&] {
                    packed<std::int32_t>("tokens", ElementType::i32, {1, 2}, {1'000'000, 0});
                }),
                HasSubstr("value 1000000 of 'tokens' of input sample 0"));
}

TEST_F(Classes, ThatDoNotOccurAreNamedUnlessTheyWereSaid) {
    const auto said = [&](const std::vector<std::int64_t>& labels) {
        testing::internal::CaptureStderr();
        packed("labels", ElementType::i64, {labels.size()}, labels);
        return testing::internal::GetCapturedStderr();
    };
    EXPECT_THAT(said({1, 2, 2, 4}), HasSubstr("labels: 2 of 5 classes do not occur: 0 and 3"));
    EXPECT_THAT(said({0, 0, 0, 0}), HasSubstr("labels: only one class"));
    EXPECT_THAT(caught_text([&] {
                    packed<std::int64_t>("labels", ElementType::i64, {3}, {0, 1, 19'999});
                }),
                HasSubstr("E210: 'labels' has 20,000 classes, of which 3 occur"));
    options_.classes = 20'000;
    EXPECT_EQ(said({0, 1, 2, 19'999}), "");
}

TEST_F(Classes, AndNumbersThatAreNotFiniteAreFound) {
    const float none = std::numeric_limits<float>::quiet_NaN();
    testing::internal::CaptureStderr();
    packed<float>("features", ElementType::f32, {3, 2}, {1, 2, 3, none, none, 6});
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("2 values of field 'features' are not finite, the first in input sample "
                          "1, at place 1 of [2]"));
}

// Numpy's whole numbers are i64.
TEST_F(Classes, AreNotOfNumbersToPredict) {
    const Field scalar =
        packed<std::int64_t>("targets", ElementType::i64, {3}, {-1, 1'000'000'000'000, 7});
    EXPECT_THAT(scalar.class_counts, IsEmpty());
    EXPECT_EQ(scalar.type, ElementType::i64);
    EXPECT_EQ(reading_error(), "");
    const Field several = packed<std::int64_t>("targets", ElementType::i64, {1, 2}, {-1, 7});
    EXPECT_THAT(several.class_counts, IsEmpty());
    EXPECT_THAT(several.shape, ElementsAre(2));
}

TEST_F(Classes, AreLookedAtInEveryElementThatIsRead) {
    packed_masks({0, 1, 2, 0, 0, 1, 2, 3});
    EXPECT_EQ(reading_error(), "");
    test::rewrite_manifest(options_.output, [](Json& json) {
        json["fields"][0]["class_counts"] = {3, 2, 2};
    });
    EXPECT_THAT(reading_error(), HasSubstr("E210: value 3 of 'masks' of sample 1 is out of range"));
    const std::vector<Finding> findings = verify_dataset(options_.output);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_THAT(findings[0].text, HasSubstr("value 3 of 'masks' of sample 1"));
}

TEST_F(Classes, OfMasksPackedWithoutThemAreNone) {
    packed_masks({0, 1, 2, 0, 0, 1, 2, 3});
    test::rewrite_manifest(options_.output,
                           [](Json& json) { json["fields"][0].erase("class_counts"); });
    EXPECT_EQ(test::open_index(options_.output)->field("masks").classes(), 0);
    EXPECT_EQ(reading_error(), "");
}

// More than an attribute of an HDF5 file has room for.
TEST_F(Classes, MayBeAVocabulary) {
    options_.classes = 50'257;
    const Field tokens =
        packed<std::int32_t>("tokens", ElementType::i32, {1, 3}, {50'256, 0, 50'256});
    EXPECT_EQ(tokens.classes(), 50'257);
    EXPECT_EQ(tokens.class_counts.back(), 2u);
    EXPECT_EQ(reading_error(), "");
    const auto index = test::open_index(options_.output);
    EXPECT_THAT(inspect_data(options_.output),
                HasSubstr("vocabulary of tokens: 50,257, of which 2 occur"));
    EXPECT_THAT(layout_report(index).labels, IsEmpty()) << "of samples, not of places";
}

TEST_F(Classes, AreNotOfLabelsThatAreSeveral) {
    const Field whole = packed<std::uint8_t>("labels", ElementType::u8, {2, 3}, {0, 1, 1, 0, 0, 1});
    EXPECT_THAT(whole.class_counts, IsEmpty());
    EXPECT_THAT(whole.shape, ElementsAre(3));
    EXPECT_EQ(whole.type, ElementType::u8);
    const Field shares = packed<float>("labels", ElementType::f32, {1, 3}, {0, 0.25, 1});
    EXPECT_THAT(shares.class_counts, IsEmpty());
    EXPECT_THAT(shares.mean, IsEmpty());
    EXPECT_EQ(reading_error(), "");
}

TEST_F(Classes, NumbersOfAnyShapeHaveMeanAndDeviation) {
    const Field series =
        packed<float>("features", ElementType::f32, {2, 2, 2}, {1, 10, 3, 10, 5, 10, 7, 10});
    EXPECT_THAT(series.mean, ElementsAre(4, 10));
    EXPECT_THAT(series.std, ElementsAre(DoubleNear(std::sqrt(5.0), 1e-12), 0));
    const Field counts = packed<std::int32_t>("counts", ElementType::i32, {2, 2}, {-3, 7, 1, 9});
    EXPECT_THAT(counts.mean, ElementsAre(-1, 8));
    const Field slices =
        packed<std::int32_t>("slices", ElementType::i32, {2, 1, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_THAT(slices.mean, ElementsAre(3.5));
    const Field volume =
        packed<std::int32_t>("volume", ElementType::i32, {2, 2, 1, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_THAT(volume.mean, ElementsAre(2.5, 4.5));
    const Field bytes = packed<std::uint8_t>("bytes", ElementType::u8, {2, 2}, {0, 255, 51, 255});
    EXPECT_THAT(bytes.mean, ElementsAre(DoubleNear(0.1, 1e-12), 1));
}

// As training takes them: an image [H, W] has one channel.
TEST_F(Classes, ImagesOfTwoDimensionsHaveOneMean) {
    const Field series{.name = "features", .type = ElementType::f32, .shape = {2, 3}};
    Field named = series, laid_out = series;
    named.name = "images";
    laid_out.layout = "HW";
    EXPECT_EQ(statistics_axis(series), 1u);
    EXPECT_FALSE(statistics_axis(named));
    EXPECT_FALSE(statistics_axis(laid_out));
    const Field bytes = packed<std::uint8_t>(
        "features", ElementType::u8, {2, 2, 2}, {0, 255, 0, 255, 0, 255, 0, 255});
    EXPECT_THAT(bytes.mean, ElementsAre(0.5));
    EXPECT_THAT(bytes.std, ElementsAre(DoubleNear(0.5, 1e-12)));
}

}  // namespace
}  // namespace lockstep
