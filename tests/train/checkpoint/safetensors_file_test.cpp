// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "checkpoint/initial_weights.hpp"
#include "support/made_up_program.hpp"
#include "support/unit.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

// A file as others write it: no padding, any order of names.
std::string container(const std::string& header, const std::string& data) {
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
    return length + header + data;
}

// One tensor of a header; `at` says where its bytes begin and end.
std::string entry(const std::string& name,
                  const std::string& dtype,
                  const std::string& shape,
                  const std::string& at) {
    return fmt::format(
        R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, at);
}

std::string two_empty(const std::string& first, const std::string& second) {
    const std::string one = entry(first, "F32", "[0]", "[0,0]");
    return container('{' + one + ',' + entry(second, "F32", "[0]", "[0,0]") + '}', "");
}

template <class T>
std::string bytes_in(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class SafetensorsInput : public InFolder {
  protected:
    std::vector<float> values(const std::string& dtype, const std::string& data, int count) {
        const std::string shape = fmt::format("[{}]", count),
                          at = fmt::format("[0,{}]", data.size());
        const WeightsFile file(
            folder_.file("a", container('{' + entry("w", dtype, shape, at) + '}', data)));
        std::vector<float> out(static_cast<std::size_t>(count));
        file.read(file.tensors().at(0), out);
        return out;
    }
    std::string error(const std::string& content) {
        return caught_text([&] { WeightsFile{folder_.file("a", content)}; });
    }
    std::string header_error(const std::string& header, const std::string& data = "abcd") {
        return error(container(header, data));
    }
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
    const auto tensor_error =
        [&](const char* shape, const char* at, const std::string& data = "abcd") {
            return header_error('{' + entry("w", "F32", shape, at) + '}', data);
        };
    EXPECT_EQ(tensor_error("[1]", "[0,4]"), "");
    EXPECT_THAT(error(""), HasSubstr("E309"));
    EXPECT_THAT(error("short"), HasSubstr("it ends within its header"));
    EXPECT_THAT(error(container("{}", "").substr(0, 9)), HasSubstr("would have 2 bytes"));
    EXPECT_THAT(error(std::string(8, '\xff') + "{}"), HasSubstr("E309"));
    EXPECT_THAT(header_error("{\"w\":"), HasSubstr("its header"));
    EXPECT_THAT(header_error("[]"), HasSubstr("is no object"));
    EXPECT_THAT(tensor_error("[2]", "[0,4]"), HasSubstr("does not fill its shape"));
    EXPECT_THAT(tensor_error("[-1]", "[0,4]"), HasSubstr("impossible"));
    EXPECT_THAT(tensor_error("[9999999999,9999999999]", "[0,4]"), HasSubstr("impossible"));
    EXPECT_THAT(tensor_error("[1]", "[4,0]"), HasSubstr("make no sense"));
    EXPECT_THAT(tensor_error("[1]", "[0]"), HasSubstr("make no sense"));
    EXPECT_THAT(tensor_error("[1]", "[0,4]", "abcdefgh"), HasSubstr("need 4 bytes; it has 8"));
    EXPECT_THAT(tensor_error("[1]", "[4,8]", "abcdefgh"), HasSubstr("a hole"));
    EXPECT_THAT(caught_text([&] { WeightsFile{folder_ / "none"}; }), HasSubstr("E201"));
}

TEST_F(SafetensorsInput, MayHaveEmptyTensorsAnywhereAndADigestOfAllItsBytes) {
    const std::string full = entry("a", "F32", "[1]", "[0,4]");
    EXPECT_EQ(header_error('{' + full + ',' + entry("b", "F32", "[0]", "[0,0]") + ',' +
                           entry("c", "F32", "[0,3]", "[4,4]") + '}'),
              "");
    const std::string content(3'000'000, 'x');
    EXPECT_EQ(file_digest(folder_.file("a", content)), hash128(content).hex());
}

// An index of two files, as Hugging Face names them.
class WeightsIndex : public InFolder {
  protected:
    WeightsIndex() {
        shard("a", "w", 1);
        shard("b", "v", 2);
    }
    void shard(const std::string& file, const std::string& tensor, float value) {
        folder_.file(
            file,
            container('{' + entry(tensor, "F32", "[]", "[0,4]") + '}', bytes_in<float>({value})));
    }
    fs::path index(const std::string& map) {
        return folder_.file("m.safetensors.index.json",
                            R"({"metadata": {"total_size": 8}, "weight_map": {)" + map + "}}");
    }
    std::string error(const std::string& map) {
        return caught_text([&] { WeightsFile{index(map)}; });
    }
};

TEST_F(WeightsIndex, NamesTheFilesOfItsTensors) {
    const fs::path path = index(R"("w": "a", "v": "b")");
    const WeightsFile file(path);
    ASSERT_EQ(file.tensors().size(), 2u);
    for (const std::size_t i : {0u, 1u}) {
        float value = 0;
        file.read(file.tensors()[i], {&value, 1});
        EXPECT_EQ(file.tensors()[i].name, i == 0 ? "w" : "v");
        EXPECT_EQ(value, static_cast<float>(i + 1));
    }
    const std::string digest = weights_digest(path);
    EXPECT_NE(digest, file_digest(path));
    shard("b", "v", 3);
    EXPECT_NE(weights_digest(path), digest) << "all files decide";
    EXPECT_EQ(weights_digest(folder_ / "b"), file_digest(folder_ / "b"));
}

TEST_F(WeightsIndex, IsCheckedByItsNames) {
    for (const char* name : {"../b", "/etc/passwd", "..", ".", "", "c/b"})
        EXPECT_THAT(error(R"("w": "a", "v": ")" + std::string(name) + "\""),
                    HasSubstr("'v' would be in '" + std::string(name) + "', which is no name"));
    EXPECT_THAT(error(R"("w": 3)"), HasSubstr("E309"));
    EXPECT_THAT(error(""), HasSubstr("has no 'weight_map' of an index"));
    const std::string missing = error(R"("w": "a", "v": "c", "u": "c")");
    EXPECT_THAT(missing, HasSubstr("E201: cannot open '" + (folder_ / "c").string()));
    EXPECT_THAT(missing, HasSubstr("says that 2 tensor(s) are in it, such as 'v'"));
    EXPECT_THAT(caught_text([&] { weights_digest(folder_ / "m.safetensors.index.json"); }),
                HasSubstr("E201"));
    EXPECT_THAT(error(R"("w": "b", "v": "b")"), HasSubstr("'w' is not in 'b', where it should be"));
    shard("b", "w", 2);
    EXPECT_THAT(error(R"("w": "a", "w ": "b")"), HasSubstr("'w ' is not in 'b'"));
    folder_.file("c", two_empty("w", "u"));
    EXPECT_THAT(error(R"("w": "a", "u": "c")"), HasSubstr("two of its files have 'w'"));
    EXPECT_THAT(error(R"("w": "m.safetensors.index.json")"), HasSubstr("E309"));
}

// What `lockstep export --format npz` writes, and what NumPy does.
class WeightsArchive : public InFolder {
  protected:
    std::string error(const std::string& content) {
        return caught_text([&] { read_all(folder_.file("a.npz", content)); });
    }
    static std::map<std::string, float> read_all(const fs::path& path) {
        const WeightsFile file(path);
        std::map<std::string, float> sums;
        for (const StoredTensor& tensor : file.tensors()) {
            if (tensor.type == StoredFloat::other) continue;
            std::vector<float> values(tensor.count());
            file.read(tensor, values);
            sums[tensor.name] = std::accumulate(values.begin(), values.end(), 0.0F);
        }
        return sums;
    }
    static std::string npy(const std::string& descr,
                           const std::string& order,
                           const std::string& shape,
                           const std::string& data) {
        const std::string text = "{'descr': '" + descr + "', 'fortran_order': " + order +
                                 ", 'shape': " + shape + ", }     \n";
        return "\x93NUMPY" + std::string{1, 0, static_cast<char>(text.size()), 0} + text + data;
    }
};

TEST_F(WeightsArchive, HasWhatWasExported) {
    const auto values = [](const auto& all) {
        return [bytes = bytes_in(all)] {
            const auto span = std::as_bytes(std::span(bytes));
            return std::vector<std::byte>(span.begin(), span.end());
        };
    };
    const std::vector<ExportedTensor> tensors = {
        {"fc.weight", ExportedElement::f32, {2, 2}, values(std::vector<float>{1, 2, 3, 4})},
        {"b", ExportedElement::f64, {}, values(std::vector<double>{0.5})},
        {"count", ExportedElement::i64, {}, values(std::vector<std::int64_t>{9})}};
    const fs::path path = folder_ / "own.npz";
    NewFile out(path);
    write_npz(out, tensors);
    out.finish();
    EXPECT_EQ(read_all(path), (std::map<std::string, float>{{"b", 0.5F}, {"fc.weight", 10}}));
    const WeightsFile file(path);
    EXPECT_THAT(file.tensors().back().shape, ElementsAre(2, 2));
    EXPECT_EQ(file.tensors()[1].dtype, "<i8");
    const std::string whole = read_file(path);
    for (std::size_t i = 0; i < whole.size(); i += 7) {
        std::string other = whole;
        other[i] = static_cast<char>(other[i] ^ 0x41);
        const std::string text = error(other);
        EXPECT_THAT(text, AnyOf("", HasSubstr("E309"))) << i;
        EXPECT_THAT(error(whole.substr(0, i)), HasSubstr("E309")) << i;
    }
}

TEST_F(WeightsArchive, IsReadAsNumpyWritesIt) {
    const auto of = [](const std::string& content) {
        return test::zip_of({{"fc.weight.npy", content}}, "");
    };
    const std::string data = bytes_in<float>({1, 2, 3, 4, 5, 6});
    const auto written = [&](const std::string& content) {
        return read_all(folder_.file("n.npz", of(content)));
    };
    EXPECT_EQ(written(npy("<f4", "False", "(2, 3)", data)).at("fc.weight"), 21);
    EXPECT_EQ(written(npy("<f4", "True", "(6,)", data)).at("fc.weight"), 21);
    EXPECT_EQ(written(npy(">f4", "False", "(6,)", data)).size(), 0u) << "no f32 as match_weights()";
    EXPECT_THAT(error(of(npy("<f4", "True", "(2, 3)", data))),
                has("'fc.weight': it is in Fortran order", "convert it: python3 -c"));
    EXPECT_THAT(error(of(npy("<f4", "False", "(2, 4)", data))), HasSubstr("does not fill"));
    EXPECT_THAT(error(of(npy("<f4", "False", "(99999999999999999999,)", data))),
                HasSubstr("its shape is impossible"));
    EXPECT_THAT(error(of(npy("<f4", "Maybe", "(6,)", data))), HasSubstr("not that of numbers"));
    EXPECT_THAT(error(of("x")), HasSubstr("it does not begin as NumPy's .npy does"));
    std::string compressed = of(npy("<f4", "False", "(6,)", data));
    compressed[compressed.rfind("PK\1\2") + 10] = 8;
    EXPECT_THAT(error(compressed), HasSubstr("only plain ones are read"));
}

// A file with b [2] and fc.weight [3], f32, and a counter.
class MatchedTensors : public InFolder {
  protected:
    std::string error(const std::vector<TensorMeta>& wanted,
                      const std::string& skip = "",
                      WeightsFor use = WeightsFor::training) {
        return caught_text([&] { matched(wanted, skip, use); });
    }
    std::vector<MatchedWeights> matched(const std::vector<TensorMeta>& wanted,
                                        const std::string& skip = "",
                                        WeightsFor use = WeightsFor::training) {
        return match_weights(file_, wanted, known_, skip, use);
    }

    const std::vector<std::string> known_{"bn.count"};
    const WeightsFile file_{
        folder_.file("a",
                     container("{\"__metadata__\":{\"format\":\"pt\"}," +
                                   entry("fc.weight", "F32", "[3]", "[16,28]") + ',' +
                                   entry("bn.count", "I64", "[]", "[8,16]") + ',' +
                                   entry("b", "F32", "[2]", "[0,8]") + '}',
                               std::string(28, '\0')))};
};

TEST_F(MatchedTensors, AreThoseOfTheSameNames) {
    const auto match = matched({{"fc.weight", {3}}, {"b", {2}}});
    ASSERT_EQ(match.size(), 2u);
    EXPECT_EQ(match[0].stored->name, "fc.weight");
    EXPECT_EQ(match[1].stored->name, "b");
}

TEST_F(MatchedTensors, MissingUnexpectedAndOtherOnesAreNamedTogether) {
    EXPECT_THAT(error({{"fc.weight", {5, 3}}, {"fc.bias", {5}}}),
                HasSubstr("missing in the file: fc.bias; not in the model: b; fc.weight is [3] in "
                          "the file and [5, 3] in the model"));
    EXPECT_THAT(
        caught_text([&] { match_weights(file_, {}, {}, "b", WeightsFor::training); }),
        HasSubstr("not in the model: bn.count, fc.weight\n  fix: leave tensors at their initial "
                  "values with --load-skip"));
    EXPECT_THAT(error({{"c", {2}}}, "", WeightsFor::evaluation), Not(HasSubstr("--load-skip")));
}

TEST_F(MatchedTensors, OfATypeThatIsNoTextAreNamedAsText) {
    const WeightsFile hostile(folder_.file(
        "h", container(R"({"w":{"dtype":"\u001b[2J","shape":[],"data_offsets":[0,1]}})", "x")));
    const std::vector<TensorMeta> wanted{{"w", {}}};
    const std::string text =
        caught_text([&] { match_weights(hostile, wanted, {}, "", WeightsFor::training); });
    EXPECT_THAT(text, has("w is ", Not(HasSubstr("\x1b"))));
}

TEST_F(MatchedTensors, AreLeftOutWherePatternsSayEachOfWhichMatches) {
    const std::vector<TensorMeta> wanted{{"fc.weight", {5, 3}}, {"fc.bias", {5}}, {"b", {2}}};
    const auto match = matched(wanted, "fc.*");
    ASSERT_EQ(match.size(), 1u);
    EXPECT_EQ(match[0].tensor, 2u);
    EXPECT_THAT(error(wanted, "fc.w*"), HasSubstr("why: missing in the file: fc.bias\n"));
    const std::vector<TensorMeta> all{{"fc.weight", {3}}, {"fc.bias", {5}}, {"b", {2}}};
    EXPECT_THAT(error(all, "fc.bias,typo.*"),
                HasSubstr("E107: --load-skip 'typo.*' has no effect\n  why: neither the model nor "
                          "the file has a tensor of such a name: b, bn.count, fc.bias, fc.weight"));
}

TEST_F(MatchedTensors, LoseThePrefixThatIsGiven) {
    const auto given = [&](const std::vector<TensorMeta>& wanted, const std::string& prefix) {
        return match_weights(file_, wanted, known_, "", WeightsFor::training, prefix);
    };
    const auto match = given({{"weight", {3}}, {"b", {2}}}, "fc.");
    ASSERT_EQ(match.size(), 2u);
    EXPECT_EQ(match[0].stored->name, "fc.weight");
    EXPECT_THAT(caught_text([&] {
                    given({{"b", {2}}}, "net.");
                }),
                HasSubstr("E107: --load-prefix 'net.' has no effect\n  why: no name in the file "
                          "begins so: b, bn.count, fc.weight"));
    const WeightsFile both(folder_.file("both", two_empty("a", "m.a")));
    const std::vector<TensorMeta> wanted{{"a", {0}}};
    EXPECT_THAT(
        caught_text([&] { match_weights(both, wanted, {}, "", WeightsFor::training, "m."); }),
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
    EXPECT_THAT(error({{"weight", {3}}}, "", WeightsFor::evaluation),
                HasSubstr("k.removeprefix('fc.'): v for k, v"));
    EXPECT_THAT(error({{"weight", {3}}, {"a", {1}}, {"c", {1}}}), HasSubstr("missing in the file"))
        << "most names have no such prefix";
}

TEST_F(MatchedTensors, OfWholeNumbersAreNoWeights) {
    const std::vector<TensorMeta> wanted{{"bn.count", {}}};
    EXPECT_THAT(
        caught_text([&] { match_weights(file_, wanted, {}, "b,fc.weight", WeightsFor::training); }),
        HasSubstr("bn.count is I64 in the file"));
}

}  // namespace
}  // namespace lockstep
