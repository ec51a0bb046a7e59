// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::bytes_in;
using test::error_of;
using test::values_of;
using testing::ElementsAre;
using testing::HasSubstr;

// As numpy writes it; npy_header_text() knows the types of fields only.
std::string tokens_npy(const std::string& descr,
                       const std::string& shape,
                       const std::string& data) {
    return test::npy_of(
        "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n", data);
}

class Tokens : public testing::Test {
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

    test::TempDir folder_;
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
