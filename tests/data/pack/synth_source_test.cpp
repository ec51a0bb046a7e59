// SPDX-License-Identifier: Apache-2.0
// Data that are made up, and windows of tokens.
#include "lockstep/data/sources.hpp"

#include "rows.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace lockstep {
namespace {

using test::bytes_in;
using test::error_of;
using test::values_of;

std::string all_rows(const RowSource& source) {
    std::string all;
    for (std::uint64_t row = 0; row < source.samples(); ++row)
        for (std::size_t f = 0; f < source.fields().size(); ++f)
            all += test::bytes_in(values_of<char>(source, f, row));
    return all;
}

constexpr SynthKind kinds[] = {
    SynthKind::classes, SynthKind::segmentation, SynthKind::regression, SynthKind::text};

TEST(Synthetic, IsAFunctionOfSeedAndSample) {
    for (const SynthKind kind : kinds) {
        const SynthOptions options{.kind = kind, .seed = 7, .samples = 20, .size = 16};
        SynthOptions later = options, other = options;
        later.first = 5;
        other.seed = 8;
        const auto source = make_synthetic(options);
        EXPECT_EQ(all_rows(*source), all_rows(*make_synthetic(options)));
        EXPECT_NE(all_rows(*source), all_rows(*make_synthetic(other)));
        EXPECT_EQ(values_of<char>(*make_synthetic(later), 0, 0), values_of<char>(*source, 0, 5));
        const std::size_t last = source->fields().size() - 1;
        EXPECT_EQ(values_of<char>(*make_synthetic(later), last, 3),
                  values_of<char>(*source, last, 8));
        EXPECT_NE(source->fingerprint(), make_synthetic(later)->fingerprint());
        EXPECT_NE(source->fingerprint(), make_synthetic(other)->fingerprint());
    }
}

// A change here changes everybody's made-up data.
TEST(Synthetic, StaysTheSameOnAnyMachine) {
    std::vector<std::string> hashes;
    for (const SynthKind kind : kinds) {
        const SynthOptions options{.kind = kind, .seed = 1, .samples = 10, .size = 12};
        hashes.push_back(hash128(all_rows(*make_synthetic(options))).hex());
    }
    EXPECT_THAT(hashes,
                ElementsAre("aeb43ec3211cb8bf020e640251987f58",
                            "a13f83e90eb2ee8ac129149ef1b39ba6",
                            "6df93fd9939a0244e9e545d573b7de26",
                            "5d5e2abe469042f83a6e0610d0e3a16c"));
}

// The nearest class mean is a weak learner; a model that may shift does better.
TEST(Synthetic, ClassesCanBeLearned) {
    const auto source = make_synthetic({.samples = 1500});
    constexpr std::uint64_t training = 1200;
    std::vector<std::vector<double>> means(10, std::vector<double>(3 * 32 * 32));
    std::vector<double> counts(10);
    for (std::uint64_t row = 0; row < training; ++row) {
        const auto label = static_cast<std::size_t>(test::label_of(*source, 1, row));
        const auto pixels = values_of<std::uint8_t>(*source, 0, row);
        ++counts.at(label);
        for (std::size_t i = 0; i < pixels.size(); ++i) means[label][i] += pixels[i];
    }
    int right = 0;
    for (std::uint64_t row = training; row < 1500; ++row) {
        const auto pixels = values_of<std::uint8_t>(*source, 0, row);
        std::vector<double> distances(10);
        for (std::size_t c = 0; c < 10; ++c)
            for (std::size_t i = 0; i < pixels.size(); ++i)
                distances[c] += std::pow(means[c][i] / counts[c] - pixels[i], 2);
        const auto nearest = std::ranges::min_element(distances) - distances.begin();
        right += nearest == test::label_of(*source, 1, row);
    }
    EXPECT_GT(right, 240) << "of 300";
    EXPECT_GT(*std::ranges::min_element(counts), 60);
}

TEST(Synthetic, MasksSayWhatThePixelsShow) {
    const auto source =
        make_synthetic({.kind = SynthKind::segmentation, .samples = 50, .size = 24, .classes = 4});
    EXPECT_THAT(source->fields()[1].shape, ElementsAre(24, 24));
    std::vector<double> sum(4), squares(4), count(4);
    for (std::uint64_t row = 0; row < 50; ++row) {
        const auto pixels = values_of<std::uint8_t>(*source, 0, row);
        const auto mask = values_of<std::uint8_t>(*source, 1, row);
        for (std::size_t p = 0; p < mask.size(); ++p) {
            ASSERT_LT(mask[p], 4);
            sum[mask[p]] += pixels[p];
            squares[mask[p]] += pixels[p] * pixels[p];
            ++count[mask[p]];
        }
    }
    for (std::size_t c = 0; c < 4; ++c) {
        EXPECT_GT(count[c], 200) << c;
        EXPECT_LT(squares[c] / count[c] - std::pow(sum[c] / count[c], 2), 250) << "one colour";
    }
}

// With one feature the target is a parabola: near points have near values.
TEST(Synthetic, TargetsFollowTheFeatures) {
    const auto source = make_synthetic({.kind = SynthKind::regression, .samples = 2000, .size = 1});
    std::vector<std::pair<float, float>> points;
    for (std::uint64_t row = 0; row < source->samples(); ++row)
        points.emplace_back(values_of<float>(*source, 0, row)[0],
                            values_of<float>(*source, 1, row)[0]);
    std::ranges::sort(points);
    EXPECT_LT(points.front().first, -0.99f);
    EXPECT_GT(points.back().first, 0.99f);
    const auto [least, most] = std::ranges::minmax(points, {}, &std::pair<float, float>::second);
    EXPECT_GT(most.second - least.second, 0.5f);
    for (std::size_t i = 1; i < points.size(); ++i)
        EXPECT_LE(std::abs(points[i].second - points[i - 1].second),
                  1.0f / 16 + 12 * (points[i].first - points[i - 1].first));
}

// How often the token most usual after `context` tokens is right, on samples that were not counted.
double predicted_share(const RowSource& source, std::size_t context) {
    std::map<std::string, std::map<char, int>> counts;
    int right = 0, all = 0;
    for (std::uint64_t row = 0; row < source.samples(); ++row) {
        const auto tokens = values_of<char>(source, 0, row);
        const std::string text(tokens.begin(), tokens.end());
        for (std::size_t i = context; i < text.size(); ++i) {
            auto& next = counts[text.substr(i - context, context)];
            const bool is_training = row < source.samples() / 2;
            if (is_training) ++next[text[i]];
            if (is_training || next.empty()) continue;
            const auto most =
                std::ranges::max_element(next, {}, [](auto& one) { return one.second; });
            right += most->first == text[i];
            ++all;
        }
    }
    return static_cast<double>(right) / all;
}

TEST(Synthetic, TextCanBeLearnedAndMoreTokensSayMore) {
    const auto source =
        make_synthetic({.kind = SynthKind::text, .samples = 400, .size = 128, .classes = 20});
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(129));
    const double none = predicted_share(*source, 0), one = predicted_share(*source, 1),
                 two = predicted_share(*source, 2);
    EXPECT_LT(none, 0.35);
    EXPECT_GT(one, none + 0.1);
    EXPECT_GT(two, 0.5);
    for (const auto token : values_of<std::uint8_t>(*source, 0, 0)) EXPECT_LT(token, 20);
}

TEST(Synthetic, HasLimits) {
    const auto code = [](SynthOptions options) {
        return caught_code([&] { make_synthetic(options); });
    };
    EXPECT_EQ(code({.samples = 0}), "E102");
    EXPECT_EQ(code({.size = 7}), "E102");
    EXPECT_EQ(code({.kind = SynthKind::regression, .size = 7}), "");
    EXPECT_EQ(code({.size = 5000}), "E102");
    EXPECT_EQ(code({.kind = SynthKind::text, .size = 0}), "E102");
    EXPECT_EQ(code({.classes = 1}), "E102");
    EXPECT_EQ(code({.classes = 256}), "E102");
}

// As numpy writes it; npy_header_text() knows the types of fields only.
std::string tokens_npy(const std::string& descr,
                       const std::string& shape,
                       const std::string& data) {
    return test::npy_of(
        "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n", data);
}

class Tokens : public InFolder {
  protected:
    std::unique_ptr<RowSource> text(const std::vector<std::string>& contents,
                                    std::uint64_t length) {
        return open_text(files(contents), length);
    }
    std::unique_ptr<RowSource> tokens(const std::vector<std::string>& contents,
                                      std::uint64_t length,
                                      RawTokens raw = RawTokens::none) {
        return open_tokens(files(contents), length, raw);
    }
    Error error(const std::string& content, RawTokens raw = RawTokens::none) {
        return error_of([&] { tokens({content}, 2, raw); });
    }
    std::vector<fs::path> files(const std::vector<std::string>& contents) {
        std::vector<fs::path> paths;
        for (const std::string& content : contents)
            paths.push_back(folder_.file(std::to_string(made_++), content));
        return paths;
    }

    int made_ = 0;
};

std::string row_text(const RowSource& source, std::uint64_t row) {
    const auto values = values_of<char>(source, 0, row);
    return {values.begin(), values.end()};
}

TEST_F(Tokens, OfTextAreBytesInWindowsThatShareOne) {
    const auto source = text({"abcdefgh"}, 3);
    EXPECT_EQ(source->fields()[0].name, "tokens");
    EXPECT_EQ(source->fields()[0].type, ElementType::u8);
    EXPECT_THAT(source->fields()[0].shape, ElementsAre(4));
    ASSERT_EQ(source->samples(), 2u) << "'h' fills no window";
    EXPECT_EQ(row_text(*source, 0), "abcd");
    EXPECT_EQ(row_text(*source, 1), "defg");
    EXPECT_EQ(text({"abcdefg"}, 3)->samples(), 2u);
    EXPECT_EQ(text({"abcdef"}, 3)->samples(), 1u);
}

TEST_F(Tokens, OfSeveralFilesAreJoined) {
    const auto source = text({"ab", "c", "defgh", "ij"}, 3);
    ASSERT_EQ(source->samples(), 3u);
    EXPECT_EQ(row_text(*source, 0), "abcd");
    EXPECT_EQ(row_text(*source, 2), "ghij");
    EXPECT_EQ(source->fingerprint(), text({"abcdefg", "hij"}, 3)->fingerprint());
    EXPECT_EQ(source->fingerprint(), text({"abcdefghijk"}, 3)->fingerprint()) << "k is left out";
    EXPECT_NE(source->fingerprint(), text({"abcdefghiJ"}, 3)->fingerprint());
    EXPECT_NE(source->fingerprint(), text({"abcdefghij"}, 2)->fingerprint());
}

TEST_F(Tokens, OfEveryTypeBecomeI32) {
    const auto check = [&](const std::string& content, RawTokens raw) {
        const auto source = tokens({content}, 1, raw);
        EXPECT_EQ(source->fields()[0].type, ElementType::i32);
        ASSERT_EQ(source->samples(), 2u);
        EXPECT_THAT(values_of<std::int32_t>(*source, 0, 1), ElementsAre(40'000, 7));
    };
    const std::string u16 = bytes_in<std::uint16_t>({1, 40'000, 7});
    const std::string u32 = bytes_in<std::uint32_t>({1, 40'000, 7});
    const std::string i64 = bytes_in<std::int64_t>({1, 40'000, 7});
    check(u16, RawTokens::u16);
    check(u32, RawTokens::u32);
    check(tokens_npy("<u2", "(3,)", u16), RawTokens::none);
    check(tokens_npy("<u4", "(3,)", u32), RawTokens::none);
    check(tokens_npy("<i4", "(3,)", u32), RawTokens::none);
    check(tokens_npy("<i8", "(3,)", i64), RawTokens::none);
    const std::string u8 = tokens_npy("|u1", "(3,)", "abc");
    EXPECT_EQ(row_text(*tokens({u8}, 2), 0), "abc") << "bytes stay bytes";
    EXPECT_THAT(values_of<std::int32_t>(*tokens({u8, tokens_npy("<u2", "(1,)", "zz")}, 3), 0, 0),
                ElementsAre('a', 'b', 'c', 'z' * 257));
}

TEST_F(Tokens, ThatNoI32HoldsAreNamed) {
    const auto reading = [&](const std::string& content, RawTokens raw) {
        return error_of([&] { values_of<std::int32_t>(*tokens({content}, 2, raw), 0, 0); });
    };
    const Error wide = reading(bytes_in<std::uint32_t>({0, 0x80000000u, 0}), RawTokens::u32);
    EXPECT_EQ(wide.code(), "E210");
    EXPECT_THAT(wide.what(), HasSubstr("token 2147483648 at place 1 of"));
    const std::string low = bytes_in<std::int64_t>({0, 0, -(1LL << 40)});
    EXPECT_EQ(reading(tokens_npy("<i8", "(3,)", low), RawTokens::none).code(), "E210");
}

TEST_F(Tokens, NameWhatIsWrong) {
    EXPECT_THAT(error_of([&] { text({""}, 3); }).why(), HasSubstr("it is empty"));
    EXPECT_EQ(error_of([&] { open_text({folder_ / "none"}, 3); }).code(), "E201");
    const Error few = error_of([&] { text({"ab", "c"}, 3); });
    EXPECT_EQ(few.code(), "E106");
    EXPECT_STREQ(few.what(), "3 tokens are fewer than one window has");
    EXPECT_EQ(few.why(), "a window of --length 3 has 4: the last is only predicted");
    EXPECT_THAT(error("abcdefg", RawTokens::u16).why(), HasSubstr("7 bytes are no whole number"));
    EXPECT_THAT(error("abcdef", RawTokens::u32).why(), HasSubstr("6 bytes are no whole number"));
    EXPECT_THAT(error("abcdef").fix(), HasSubstr("--token-type u16 or u32"));
    const std::string npy = tokens_npy("<u2", "(3,)", "aabbcc");
    EXPECT_EQ(error(npy).code(), "none");
    EXPECT_THAT(error(npy, RawTokens::u16).why(), HasSubstr("contains its type"));
    EXPECT_THAT(error(npy + "d").why(), HasSubstr("need 6 bytes; it has 7"));
    EXPECT_THAT(error(tokens_npy("<u2", "(3, 1)", "aabbcc")).why(), HasSubstr("2 dimensions"));
    EXPECT_THAT(error(tokens_npy(">u2", "(3,)", "aabbcc")).why(), HasSubstr("its type is '>u2'"));
    EXPECT_THAT(error(tokens_npy("<f4", "(1,)", "abcd")).fix(), HasSubstr("x.astype(\"<i8\")"));
}

}  // namespace
}  // namespace lockstep
