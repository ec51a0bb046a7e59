// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/options.hpp"

#include "support/caught.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::caught_code;
using test::caught_text;

const std::string from = "command line";

std::string code_of(const Option& option, const std::string& text) {
    return caught_code([&] { option.assign({text, from}); });
}

TEST(WholeOption, TakesNumbersOfItsRange) {
    int value = 5;
    const Option option = whole_option("n", value, {1, 10}, "");
    EXPECT_EQ(option.default_value, "5");
    option.assign({"10", from});
    EXPECT_EQ(value, 10);
    for (const char* bad : {"", "ten", "1.5", "1e3", " 1", "1 ", "0x1", "99999999999999999999"})
        EXPECT_EQ(code_of(option, bad), "E103") << bad;
    for (const char* bad : {"0", "-3", "11"}) EXPECT_EQ(code_of(option, bad), "E102") << bad;
    EXPECT_EQ(value, 10);
}

TEST(WholeOption, SaysTheValueItsOriginAndTheRange) {
    int value = 1;
    const Option option = whole_option("epochs", value, {1, 1'000'000}, "");
    EXPECT_EQ(caught_text([&] {
                  option.assign({"0", "a.toml:1:2"});
              }),
              "lockstep: error E102: --epochs is '0' (from a.toml:1:2)\n"
              "  why: it must be 1 to 1,000,000\n  fix: give a number in that range");
}

TEST(RealOption, TakesFiniteNumbersOfItsRange) {
    double value = 0.5;
    const Option option = real_option("lr", value, {0, 1}, "");
    option.assign({"1e-3", from});
    EXPECT_EQ(value, 1e-3);
    for (const char* bad : {"", "fast", "nan", "inf", "0,1"})
        EXPECT_EQ(code_of(option, bad), "E103") << bad;
    for (const char* bad : {"-0.1", "1.5"}) EXPECT_EQ(code_of(option, bad), "E102") << bad;
}

TEST(FlagOption, TakesTrueAndFalse) {
    bool plain = false, bias = true;
    const Option flag = flag_option("plain", plain, ""),
                 unset = unset_flag_option("no-bias", bias, "");
    flag.assign({"true", from});
    unset.assign({"1", from});
    EXPECT_TRUE(plain);
    EXPECT_FALSE(bias);
    EXPECT_EQ(code_of(flag, "yes"), "E103");
    EXPECT_EQ(unset.default_value, "false");
}

TEST(ChoiceOption, TakesOneOfItsWords) {
    char value = 'a';
    const Option option = choice_option("optimizer", value, {{"adam", 'a'}, {"sgd", 's'}}, "");
    EXPECT_EQ(option.value, "adam|sgd");
    EXPECT_EQ(option.default_value, "adam");
    option.assign({"sgd", from});
    EXPECT_EQ(value, 's');
    EXPECT_EQ(caught_text([&] {
                  option.assign({"sdg", from});
              }),
              "lockstep: error E103: --optimizer is 'sdg' (from command line)\n"
              "  why: it must be one of adam, sgd\n  fix: did you mean 'sgd'?");
}

TEST(SomeOption, TakesSomeOfItsWordsEachOnce) {
    std::vector<std::string> values{"tree"};
    const Option option = some_option("beside", values, {"all", "ring", "tree"}, "");
    EXPECT_EQ(option.default_value, "tree");
    option.assign({"ring,all,ring", from});
    EXPECT_EQ(values, (std::vector<std::string>{"ring", "all"}));
    EXPECT_EQ(code_of(option, ""), "E103");
    EXPECT_EQ(caught_text([&] {
                  option.assign({"ring,tre", from});
              }),
              "lockstep: error E103: --beside is 'ring,tre' (from command line)\n"
              "  why: 'tre' is none of all, ring, tree\n  fix: did you mean 'tree'?");
}

TEST(FilledOption, TakesAnythingButNothing) {
    std::string value;
    const Option option = filled(text_option("hosts HOST:N", value, ""));
    EXPECT_EQ(code_of(option, ""), "E103");
    option.assign({"a:1", from});
    EXPECT_EQ(value, "a:1");
}

TEST(PathOption, TakesAnythingButNothing) {
    std::filesystem::path value;
    const Option option = path_option("run DIR", value, "");
    option.assign({"runs/a", from});
    EXPECT_EQ(value, "runs/a");
    EXPECT_EQ(code_of(option, ""), "E103");
}

TEST(BytesOption, TakesSizesOfAtLeastAMebibyte) {
    std::uint64_t value = 0;
    const Option option = bytes_option("data-memory", value, "");
    option.assign({"64MiB", from});
    EXPECT_EQ(value, 64u << 20);
    for (const char* bad : {"", "64 apples", "-1MiB", "1KiB"})
        EXPECT_EQ(code_of(option, bad), "E103") << bad;
}

TEST(StepsOption, TakesACountWithItsUnitOrWithout) {
    std::int64_t value = 0;
    const Option option = steps_option("log-every", value, "");
    for (const char* given : {"20", "20steps", "20step"}) {
        value = 0;
        option.assign({given, from});
        EXPECT_EQ(value, 20) << given;
    }
    for (const char* bad : {"", "steps", "20epochs", "20 steps", "-1steps", "2.5steps"})
        EXPECT_EQ(code_of(option, bad), "E103") << bad;
}

struct PeriodCase {
    std::string text;
    Period period;
};

class Periods : public testing::TestWithParam<PeriodCase> {};

TEST_P(Periods, AreReadAndWritten) {
    const auto& [text, period] = GetParam();
    EXPECT_EQ(parse_period("every", {text, from}), period);
    EXPECT_EQ(parse_period("every", {period_text(period), from}), period);
}

INSTANTIATE_TEST_SUITE_P(,
                         Periods,
                         testing::Values(PeriodCase{"never", {}},
                                         PeriodCase{"1step", {Period::Unit::steps, 1}},
                                         PeriodCase{"500steps", {Period::Unit::steps, 500}},
                                         PeriodCase{"1epoch", {Period::Unit::epochs, 1}},
                                         PeriodCase{"3epochs", {Period::Unit::epochs, 3}},
                                         PeriodCase{"90s", {Period::Unit::seconds, 90}},
                                         PeriodCase{"10m", {Period::Unit::seconds, 600}},
                                         PeriodCase{"2h", {Period::Unit::seconds, 7200}}));

TEST(ParsePeriod, WantsACountAndAUnit) {
    for (const char* bad : {"",
                            "500",
                            "steps",
                            "0steps",
                            "-1steps",
                            "1.5epochs",
                            "5 steps",
                            "5d",
                            "1000000000steps",
                            "5stepss"})
        EXPECT_EQ(caught_code([&] { parse_period("every", {bad, from}); }), "E103") << bad;
    const auto fix = [](const std::string& given) {
        return test::caught([&] { parse_period("every", {given, from}); })->fix();
    };
    EXPECT_EQ(fix("20"), "for example --every 20steps");
    EXPECT_EQ(fix("0"), "for example --every 500steps");
}

}  // namespace
}  // namespace lockstep
