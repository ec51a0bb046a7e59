// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/sources.hpp"

#include "rows.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::values_of;
using testing::ElementsAre;

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
        return test::caught_code([&] { make_synthetic(options); });
    };
    EXPECT_EQ(code({.samples = 0}), "E102");
    EXPECT_EQ(code({.size = 7}), "E102");
    EXPECT_EQ(code({.kind = SynthKind::regression, .size = 7}), "");
    EXPECT_EQ(code({.size = 5000}), "E102");
    EXPECT_EQ(code({.kind = SynthKind::text, .size = 0}), "E102");
    EXPECT_EQ(code({.classes = 1}), "E102");
    EXPECT_EQ(code({.classes = 256}), "E102");
}

}  // namespace
}  // namespace lockstep
