// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.hpp"
#include "lockstep/run/safetensors.hpp"

#include "checkpoint/initial_weights.hpp"
#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::caught_text;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A file as others write it: no padding, any order of names.
std::string container(const std::string& header, const std::string& data) {
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
    return length + header + data;
}

template <class T>
std::string bytes_in(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class SafetensorsInput : public testing::Test {
  protected:
    std::vector<float> values(const std::string& dtype, const std::string& data, int count) {
        const SafetensorsFile file(folder_.file(
            "a",
            container("{\"w\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + std::to_string(count) +
                          "],\"data_offsets\":[0," + std::to_string(data.size()) + "]}}",
                      data)));
        std::vector<float> out(static_cast<std::size_t>(count));
        file.read(file.tensors().at(0), out);
        return out;
    }
    std::string error(const std::string& content) {
        return caught_text([&] { SafetensorsFile{folder_.file("a", content)}; });
    }
    std::string header_error(const std::string& header, const std::string& data = "abcd") {
        return error(container(header, data));
    }

    test::TempDir folder_;
};

TEST_F(SafetensorsInput, ReadsFloatsOfEveryWidth) {
    EXPECT_THAT(values("F32", bytes_in<float>({1.5F, -0.0F}), 2), ElementsAre(1.5F, -0.0F));
    EXPECT_THAT(values("F64", bytes_in<double>({0.1, -1e300}), 2),
                ElementsAre(0.1F, -std::numeric_limits<float>::infinity()));
    EXPECT_THAT(values("BF16", bytes_in<std::uint16_t>({0x3f80, 0xc049}), 2),
                ElementsAre(1.0F, -3.140625F));
    const auto halves =
        values("F16",
               bytes_in<std::uint16_t>({0x3c00, 0xc248, 0x0001, 0x83ff, 0x7bff, 0xfc00, 0x7e00}),
               7);
    EXPECT_EQ(halves[0], 1.0F);
    EXPECT_EQ(halves[1], -3.140625F);
    EXPECT_EQ(halves[2], std::ldexp(1.0F, -24)) << "the least";
    EXPECT_EQ(halves[3], -1023 * std::ldexp(1.0F, -24)) << "the largest subnormal";
    EXPECT_EQ(halves[4], 65504.0F);
    EXPECT_EQ(halves[5], -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(halves[6]));
}

TEST_F(SafetensorsInput, NamesWhatIsWrong) {
    const auto tensor =
        [](const std::string& dtype, const std::string& shape, const std::string& at) {
            return "{\"w\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
                   ",\"data_offsets\":" + at + "}}";
        };
    EXPECT_EQ(header_error(tensor("F32", "[1]", "[0,4]")), "");
    EXPECT_THAT(error(""), HasSubstr("E309"));
    EXPECT_THAT(error("short"), HasSubstr("it ends within its header"));
    EXPECT_THAT(error(container("{}", "").substr(0, 9)), HasSubstr("would have 2 bytes"));
    EXPECT_THAT(error(std::string(8, '\xff') + "{}"), HasSubstr("E309"));
    EXPECT_THAT(header_error("{\"w\":"), HasSubstr("its header"));
    EXPECT_THAT(header_error("[]"), HasSubstr("is no object"));
    EXPECT_THAT(header_error(tensor("F32", "[2]", "[0,4]")), HasSubstr("does not fill its shape"));
    EXPECT_THAT(header_error(tensor("F32", "[-1]", "[0,4]")), HasSubstr("impossible"));
    EXPECT_THAT(header_error(tensor("F32", "[9999999999,9999999999]", "[0,4]")),
                HasSubstr("impossible"));
    EXPECT_THAT(header_error(tensor("F32", "[1]", "[4,0]")), HasSubstr("make no sense"));
    EXPECT_THAT(header_error(tensor("F32", "[1]", "[0]")), HasSubstr("make no sense"));
    EXPECT_THAT(header_error(tensor("F32", "[1]", "[0,4]"), "abcdefgh"),
                HasSubstr("need 4 bytes; it has 8"));
    EXPECT_THAT(header_error(tensor("F32", "[1]", "[4,8]"), "abcdefgh"), HasSubstr("a hole"));
    EXPECT_THAT(caught_text([&] { SafetensorsFile{folder_ / "none"}; }), HasSubstr("E201"));
}

TEST_F(SafetensorsInput, MayHaveEmptyTensorsAnywhere) {
    EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                           R"("c":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}})"),
              "");
}

TEST_F(SafetensorsInput, HasADigestOfAllItsBytes) {
    const std::string content(3'000'000, 'x');
    EXPECT_EQ(file_digest(folder_.file("a", content)), hash128(content).hex());
}

// A file with b [2] and fc.weight [3], f32, and a counter.
class MatchedTensors : public testing::Test {
  protected:
    std::string error(const std::vector<TensorMeta>& wanted, const std::string& skip = "") {
        return caught_text([&] { matched(wanted, skip); });
    }
    WeightsMatch matched(const std::vector<TensorMeta>& wanted,
                         const std::string& skip = "",
                         WeightsFor use = WeightsFor::training) {
        return match_weights(file_, wanted, known_, skip, use);
    }

    test::TempDir folder_;
    const std::vector<std::string> known_{"bn.count"};
    const SafetensorsFile file_{folder_.file(
        "a",
        container("{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[16,28]},"
                  "\"bn.count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[8,16]},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                  std::string(28, '\0')))};
};

TEST_F(MatchedTensors, AreThoseOfTheSameNames) {
    const WeightsMatch match = matched({{"fc.weight", {3}}, {"b", {2}}});
    ASSERT_EQ(match.tensors.size(), 2u);
    EXPECT_EQ(match.tensors[0].stored->name, "fc.weight");
    EXPECT_EQ(match.tensors[1].stored->name, "b");
    EXPECT_EQ(match.skipped, 0u);
}

TEST_F(MatchedTensors, MissingUnexpectedAndOtherOnesAreNamedTogether) {
    EXPECT_THAT(error({{"fc.weight", {5, 3}}, {"fc.bias", {5}}}),
                HasSubstr("missing in the file: fc.bias; not in the model: b; fc.weight is [3] in "
                          "the file and [5, 3] in the model"));
    EXPECT_THAT(
        caught_text([&] { match_weights(file_, {}, {}, "b", WeightsFor::training); }),
        HasSubstr("not in the model: bn.count, fc.weight\n  fix: leave tensors at their initial "
                  "values with --load-skip"));
    EXPECT_THAT(caught_text([&] {
                    matched({{"c", {2}}}, "", WeightsFor::evaluation);
                }),
                Not(HasSubstr("--load-skip")));
}

TEST_F(MatchedTensors, OfATypeThatIsNoTextAreNamedAsText) {
    const SafetensorsFile hostile(folder_.file(
        "h", container(R"({"w":{"dtype":"\u001b[2J","shape":[],"data_offsets":[0,1]}})", "x")));
    const std::vector<TensorMeta> wanted{{"w", {}}};
    const std::string text =
        caught_text([&] { match_weights(hostile, wanted, {}, "", WeightsFor::training); });
    EXPECT_THAT(text, HasSubstr("w is "));
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(MatchedTensors, AreLeftOutWherePatternsSay) {
    const std::vector<TensorMeta> wanted{{"fc.weight", {5, 3}}, {"fc.bias", {5}}, {"b", {2}}};
    const WeightsMatch match = matched(wanted, "fc.*");
    ASSERT_EQ(match.tensors.size(), 1u);
    EXPECT_EQ(match.tensors[0].tensor, 2u);
    EXPECT_EQ(match.skipped, 2u) << "one of them is in the model alone";
    EXPECT_THAT(error(wanted, "fc.w*"), HasSubstr("why: missing in the file: fc.bias\n"));
}

TEST_F(MatchedTensors, AreSome) {
    const std::vector<TensorMeta> wanted{{"fc.weight", {3}}, {"fc.bias", {5}}, {"b", {2}}};
    EXPECT_THAT(error(wanted, "*"),
                HasSubstr("E107: --load-skip '*' leaves nothing to load\n  why: it matches all 3"));
    EXPECT_THAT(error(wanted, "fc.bias,typo.*"),
                HasSubstr("E107: --load-skip 'typo.*' has no effect\n  why: neither the model nor "
                          "the file has a tensor of such a name: b, bn.count, fc.bias, fc.weight"));
}

TEST_F(MatchedTensors, LoseThePrefixThatIsGiven) {
    const auto given = [&](const std::vector<TensorMeta>& wanted, const std::string& prefix) {
        return match_weights(file_, wanted, known_, "", WeightsFor::training, prefix);
    };
    const WeightsMatch match = given({{"weight", {3}}, {"b", {2}}}, "fc.");
    ASSERT_EQ(match.tensors.size(), 2u);
    EXPECT_EQ(match.tensors[0].stored->name, "fc.weight");
    EXPECT_THAT(caught_text([&] {
                    given({{"b", {2}}}, "net.");
                }),
                HasSubstr("E107: --load-prefix 'net.' has no effect\n  why: no name in the file "
                          "begins so: b, bn.count, fc.weight"));
    const SafetensorsFile both(
        folder_.file("both",
                     container(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                               R"("m.a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                               "")));
    EXPECT_THAT(
        caught_text([&] {
            match_weights(
                both, std::vector<TensorMeta>{{"a", {0}}}, {}, "", WeightsFor::training, "m.");
        }),
        HasSubstr("it has 'a' with --load-prefix and without"));
}

TEST_F(MatchedTensors, OfNamesThatDifferByAPrefixAreRenamedByACommand) {
    const std::string longer = error({{"net.fc.weight", {3}}, {"net.b", {2}}});
    EXPECT_THAT(longer, HasSubstr("E304"));
    EXPECT_THAT(longer, HasSubstr("why: names begin with 'net.' in the model only\n"));
    EXPECT_THAT(longer, HasSubstr("else 'net.' + k: v for k, v"));
    const std::string shorter = error({{"weight", {3}}});
    EXPECT_THAT(shorter, HasSubstr("why: names begin with 'fc.' in the file only\n"));
    EXPECT_THAT(shorter, HasSubstr("fix: give --load-prefix fc., too"));
    EXPECT_THAT(caught_text([&] {
                    matched({{"weight", {3}}}, "", WeightsFor::evaluation);
                }),
                HasSubstr("k.removeprefix('fc.'): v for k, v"));
    EXPECT_THAT(error({{"weight", {3}}, {"a", {1}}, {"c", {1}}}), HasSubstr("missing in the file"))
        << "most names have no such prefix";
}

TEST_F(MatchedTensors, OfWholeNumbersAreNoWeights) {
    EXPECT_THAT(caught_text([&] {
                    match_weights(file_,
                                  std::vector<TensorMeta>{{"bn.count", {}}},
                                  {},
                                  "b,fc.weight",
                                  WeightsFor::training);
                }),
                HasSubstr("bn.count is I64 in the file"));
}

}  // namespace
}  // namespace lockstep
