// SPDX-License-Identifier: Apache-2.0
// Where settings come from: files, the environment and options.
#include "lockstep/core/config.hpp"

#include "lockstep/core/environment.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/split.hpp"

#include "support/unit.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

using test::error_of;

class ConfigTest : public InFolder {
  protected:
    Config config_of(std::string_view text) const {
        return read_config(folder_.file("train.toml", text));
    }

    std::string code_of(std::string_view text) const {
        return caught_code([&] { config_of(text); });
    }
};

TEST_F(ConfigTest, FlattensTablesToDottedKeysAndRemembersWhereAValueStands) {
    const auto config = config_of(
        "batch-size = 64\n[optimizer]\nlr = 0.1\nnesterov = true\nname = \"sgd\"\n"
        "[optimizer.schedule]\nsteps = 5\n");
    EXPECT_EQ(config.size(), 5u);
    EXPECT_EQ(config.at("batch-size").value, ConfigValue(std::int64_t{64}));
    EXPECT_EQ(config.at("optimizer.lr").value, ConfigValue(0.1));
    EXPECT_EQ(config.at("optimizer.nesterov").value, ConfigValue(true));
    EXPECT_EQ(config.at("optimizer.name").value, ConfigValue(std::string("sgd")));
    EXPECT_EQ(config.at("optimizer.schedule.steps").value, ConfigValue(std::int64_t{5}));
    EXPECT_TRUE(config_of("# nothing\n").empty());
    EXPECT_THAT(config_of("# a comment\n\n  lr = 0.1\n").at("lr").origin,
                MatchesRegex(".*train.toml:3:[0-9]+"));
}

TEST_F(ConfigTest, ReadsListsOfTextsOrOfNumbersAsOneItemALine) {
    const auto config = config_of("a = ['x', 'y,z']\nb = [8, 0.5]\nc = []\nd = 'x'\n");
    const auto is = [&](const char* key, ConfigList list, const std::string& text) {
        return config.at(key).list == list && config.at(key).value == ConfigValue(text);
    };
    EXPECT_TRUE(is("a", ConfigList::texts, "x\ny,z"));
    EXPECT_TRUE(is("b", ConfigList::numbers, "8\n0.5"));
    EXPECT_TRUE(is("c", ConfigList::texts, ""));
    EXPECT_TRUE(is("d", ConfigList::none, "x"));
}

TEST_F(ConfigTest, PointsACaretAtASyntaxErrorAlsoBehindTabsAndLetters) {
    const Error error = error_of([&] { config_of("epochs = 2\nlr = = 0.1\n"); });
    EXPECT_EQ(error.code(), "E110");
    EXPECT_THAT(error.what(), HasSubstr("train.toml:2:6"));
    EXPECT_THAT(error.why(), EndsWith("    lr = = 0.1\n         ^"));
    const Error behind = error_of([&] { config_of("\tname = \"\xc3\xa4\xc3\xb6\" x\n"); });
    EXPECT_THAT(behind.why(), EndsWith("    \tname = \"\xc3\xa4\xc3\xb6\" x\n    \t            ^"));
}

TEST_F(ConfigTest, RefusesKeysTwiceListsOfSeveralTypesDatesNumbersThatAreNoneAndUnreadableFiles) {
    EXPECT_EQ(code_of("lr = 0.1\nlr = 0.2\n"), "E110");
    for (const auto value : {"[1, 'a']", "[true]", "[[1]]", "2026-01-31", "nan", "inf"})
        EXPECT_EQ(code_of(fmt::format("x = {}\n", value)), "E112") << value;
    EXPECT_EQ(code_of(std::string_view("a = 1\0", 6)), "E115");
    EXPECT_EQ(code_of("a = \"\xff\xfe\"\n"), "E115");
    EXPECT_EQ(code_of("\x89HDF\r\n\x1a\n"), "E115");
    EXPECT_EQ(caught_code([&] { read_config(folder_ / "none.toml"); }), "E116");
    EXPECT_EQ(caught_code([&] { read_config(folder_.path()); }), "E116");
    ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    EXPECT_THAT(caught_text([&] { read_config(folder_ / "pipe"); }), has("E116: ", "a pipe"));
}

std::string dotted(std::size_t parts) {
    std::string key = "a";
    for (std::size_t i = 1; i < parts; ++i) key += i % 3 == 0 ? ".a" : i % 3 == 1 ? " . a" : ".'a'";
    return key;
}

std::string nested_tables(int tables) {
    return tables == 0 ? "b = 1" : dotted(20) + " = {" + nested_tables(tables - 1) + "}";
}

TEST_F(ConfigTest, RefusesKeysThatOverflowTheParsersStack) {
    for (const std::size_t parts : {33u, 20'000u, 100'000u}) {
        EXPECT_EQ(code_of("[" + dotted(parts) + "]\nb = 1\n"), "E110") << parts;
        EXPECT_EQ(code_of("[[" + dotted(parts) + "]]\nb = 1\n"), "E110") << parts;
        EXPECT_EQ(code_of(dotted(parts) + " = 1\n"), "E110") << parts;
        EXPECT_EQ(code_of("x = {" + dotted(parts) + " = 1}\n"), "E110") << parts;
        EXPECT_EQ(code_of("x = {y = \"\"\"a\"\"\"\", " + dotted(parts) + " = 1}"), "E110") << parts;
    }
    EXPECT_EQ(code_of(nested_tables(200)), "E110");
    for (const std::size_t depth : {33u, 100'000u})
        EXPECT_EQ(code_of("a = " + std::string(depth, '[')), "E110") << depth;
    EXPECT_THAT(error_of([&] { config_of("a = 1\n\n" + dotted(99) + " = 1\n"); }).what(),
                HasSubstr("train.toml:3: "));
}

TEST_F(ConfigTest, CountsNoDotsAndBracketsOfTextsAndComments) {
    const std::string dots(200, '.'), brackets(200, '[');
    EXPECT_EQ(
        config_of("a = \"" + dots + "\\\"" + brackets + "\" # " + dots + brackets + "\nb = '''\n" +
                  dots + "\n''" + brackets + "'''\n[c]\n" + dotted(31) + " = 1.5\n")
            .size(),
        3u);
    EXPECT_EQ(code_of(dotted(32) + " = 1\n"), "");
}

TEST_F(ConfigTest, RefusesLongKeysInAFewWords) {
    const Error error = error_of([&] { config_of(std::string(500'000, 'k') + " = 1\n"); });
    EXPECT_EQ(error.code(), "E111");
    EXPECT_LT(error.text().size(), 500u);
    const std::string key(400'000, 'k');
    const Error twice = error_of([&] { config_of(key + " = 1\n" + key + " = 2\n"); });
    EXPECT_EQ(twice.code(), "E110");
    EXPECT_LT(twice.text().size(), 1000u);
}

TEST(ConfigText, ParsesBackToTheSameValueWhoseTypeIsInWords) {
    const TempDir folder;
    for (const ConfigValue& value :
         {ConfigValue(true), ConfigValue(std::int64_t{-3}), ConfigValue(0.1), ConfigValue(1e-7)}) {
        const auto path = folder.file("c.toml", "k = " + config_text(value) + "\n");
        EXPECT_EQ(read_config(path).at("k").value, value) << config_text(value);
    }
    EXPECT_EQ(config_text(std::string("sgd")), "sgd");
    EXPECT_EQ(config_type_name(true), "true/false");
    EXPECT_EQ(config_type_name(std::int64_t{1}), "a whole number");
    EXPECT_EQ(config_type_name(0.5), "a real number");
    EXPECT_EQ(config_type_name(std::string("x")), "text");
}

using Variables = std::map<std::string, std::string>;

TEST(Environment, ReadsTextAndNumbersAndNamesAVariableThatIsNone) {
    const Environment environment(
        Variables{{"A", "x y"}, {"N", "-7"}, {"EMPTY", ""}, {"LOCKSTEP_THREADS", "two"}});
    EXPECT_EQ(environment.text("A"), "x y");
    EXPECT_EQ(environment.text("EMPTY"), "");
    EXPECT_EQ(environment.text("NONE"), std::nullopt);
    EXPECT_EQ(environment.integer("N"), -7);
    EXPECT_EQ(environment.integer("NONE"), std::nullopt);
    EXPECT_EQ(caught_text([&] { static_cast<void>(environment.integer("LOCKSTEP_THREADS")); }),
              "lockstep: error E113: LOCKSTEP_THREADS is 'two' (from environment)\n"
              "  why: it must be a whole number\n"
              "  fix: unset LOCKSTEP_THREADS or set it to a whole number");
}

TEST(Environment, RemembersWhatWasAskedAndListsNamesByPrefix) {
    const Environment environment(Variables{{"A", "1"}, {"B", "2"}});
    static_cast<void>(environment.integer("A"));
    static_cast<void>(environment.text("C"));
    const auto& readings = environment.readings();
    ASSERT_EQ(readings.size(), 2u);
    EXPECT_EQ(readings.at("A").value, "1");
    EXPECT_TRUE(readings.at("A").is_set);
    EXPECT_FALSE(readings.at("C").is_set);
    const Environment several(Variables{{"SLURM_A", ""}, {"SLURM_B", ""}, {"OTHER", ""}});
    EXPECT_THAT(several.names_with_prefix("SLURM_"), ElementsAre("SLURM_A", "SLURM_B"));
}

TEST(Environment, IsTheProcesssOwnByDefault) {
    ::setenv("LOCKSTEP_TEST_VARIABLE", "here", 1);
    const Environment environment;
    EXPECT_EQ(environment.text("LOCKSTEP_TEST_VARIABLE"), "here");
    EXPECT_THAT(environment.names_with_prefix("LOCKSTEP_TEST_"),
                Contains("LOCKSTEP_TEST_VARIABLE"));
    ::unsetenv("LOCKSTEP_TEST_VARIABLE");
    EXPECT_EQ(environment.text("LOCKSTEP_TEST_VARIABLE"), std::nullopt);
}

const std::string from = "command line";

std::string code_of(const Option& option, const std::string& text) {
    return caught_code([&] { option.assign({text, from}); });
}

std::string text_of(const Option& option,
                    const std::string& text,
                    const std::string& origin = from) {
    return caught_text([&] { option.assign({text, origin}); });
}

TEST(WholeOption, TakesNumbersOfItsRangeAndSaysTheValueItsOriginAndTheRange) {
    int value = 5;
    const Option option = whole_option("n", value, {1, 10}, "");
    EXPECT_EQ(option.default_value, "5");
    option.assign({"10", from});
    EXPECT_EQ(value, 10);
    for (const char* bad : {"", "ten", "1.5", "1e3", " 1", "1 ", "0x1", "99999999999999999999"})
        EXPECT_EQ(code_of(option, bad), "E103") << bad;
    for (const char* bad : {"0", "-3", "11"}) EXPECT_EQ(code_of(option, bad), "E102") << bad;
    EXPECT_EQ(value, 10);
    EXPECT_EQ(text_of(whole_option("epochs", value, {1, 1'000'000}, ""), "0", "a.toml:1:2"),
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

TEST(ChoiceOption, TakesOneOfItsWordsAndNoGpuForACpu) {
    char value = 'a';
    const Option option = choice_option("optimizer", value, {{"adam", 'a'}, {"sgd", 's'}}, "");
    EXPECT_EQ(option.value, "adam|sgd");
    EXPECT_EQ(option.default_value, "adam");
    option.assign({"sgd", from});
    EXPECT_EQ(value, 's');
    EXPECT_EQ(text_of(option, "sdg"),
              "lockstep: error E103: --optimizer is 'sdg' (from command line)\n"
              "  why: it must be one of adam, sgd\n  fix: did you mean 'sgd'?");
    const auto said = [&](const char* word, const char* own) {
        return text_of(
            choice_option("device", value, {{"auto", 'a'}, {"cpu", 'c'}, {own, 'g'}}, ""), word);
    };
    EXPECT_THAT(said("gpu", "cuda"), EndsWith("fix: did you mean 'cuda'?"));
    EXPECT_THAT(said("cuda", "gpu"), EndsWith("fix: did you mean 'gpu'?"));
    EXPECT_THAT(said("gpu", "none"), EndsWith("one of auto, cpu, none"));
}

TEST(SomeOption, TakesSomeOfItsWordsEachOnce) {
    std::vector<std::string> values{"tree"};
    const Option option = some_option("beside", values, {"all", "ring", "tree"}, "");
    EXPECT_EQ(option.default_value, "tree");
    option.assign({"ring,all,ring", from});
    EXPECT_EQ(values, (std::vector<std::string>{"ring", "all"}));
    EXPECT_EQ(code_of(option, ""), "E103");
    EXPECT_EQ(text_of(option, "ring,tre"),
              "lockstep: error E103: --beside is 'ring,tre' (from command line)\n"
              "  why: 'tre' is none of all, ring, tree\n  fix: did you mean 'tree'?");
}

TEST(FilledAndPathOption, TakeAnythingButNothing) {
    std::string hosts;
    std::filesystem::path run;
    for (const Option& option :
         {filled(text_option("hosts HOST:N", hosts, "")), path_option("run DIR", run, "")}) {
        EXPECT_EQ(code_of(option, ""), "E103") << option.name;
        option.assign({"runs/a", from});
    }
    EXPECT_EQ(hosts, "runs/a");
    EXPECT_EQ(run, "runs/a");
}

TEST(PathOption, TakesATildeForTheHomeFolderOnlyWhereSuchAFolderExists) {
    const test::TempDir folder;
    const auto before = std::filesystem::current_path();
    const std::string home_before = Environment().text("HOME").value_or("");
    std::filesystem::current_path(folder.path());
    ::setenv("HOME", "/home/ada", 1);
    std::filesystem::path run;
    const Option option = path_option("run DIR", run, "");
    EXPECT_EQ(text_of(option, "~/a"),
              "lockstep: error E103: --run is '~/a' (from command line)\n"
              "  why: the shell did not replace '~' here, and there is no folder of that name\n"
              "  fix: for example --run /home/ada/a");
    std::filesystem::create_directories("~/a");
    for (const char* taken : {"~/a", "~a", "a~/b"}) {
        option.assign({taken, from});
        EXPECT_EQ(run, taken);
    }
    ::setenv("HOME", home_before.c_str(), 1);
    std::filesystem::current_path(before);
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

TEST(ParsePeriod, ReadsWhatIsWritten) {
    using enum Period::Unit;
    for (const auto& [text, period] : std::map<std::string, Period>{{"never", {}},
                                                                    {"1step", {steps, 1}},
                                                                    {"500steps", {steps, 500}},
                                                                    {"1epoch", {epochs, 1}},
                                                                    {"3epochs", {epochs, 3}},
                                                                    {"90s", {seconds, 90}},
                                                                    {"10m", {seconds, 600}},
                                                                    {"2h", {seconds, 7200}}}) {
        EXPECT_EQ(parse_period("every", {text, from}), period) << text;
        EXPECT_EQ(parse_period("every", {period_text(period), from}), period) << text;
    }
}

TEST(ParsePeriod, WantsACountAndAUnit) {
    for (const std::string& bad :
         split("|500|steps|0steps|-1steps|1.5epochs|5 steps|5d|1000000000steps|5stepss", '|'))
        EXPECT_EQ(caught_code([&] { parse_period("every", {bad, from}); }), "E103") << bad;
    const auto fix = [](const std::string& given) {
        return caught([&] { parse_period("every", {given, from}); })->fix();
    };
    EXPECT_EQ(fix("20"), "for example --every 20steps");
    EXPECT_EQ(fix("0"), "for example --every 500steps");
}

}  // namespace
}  // namespace lockstep
