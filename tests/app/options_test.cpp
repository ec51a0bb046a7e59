// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "lockstep/core/error.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"
#include "train_options.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

struct Parsed {
    TrainOptions options;
    OptionTable table = train_option_table(options);

    std::vector<ResolvedOption> resolve(const std::vector<std::string>& words,
                                        const std::map<std::string, std::string>& variables = {}) {
        return resolve_options(table, parse_line(words, table), Environment(variables));
    }
};

const ResolvedOption& find(const std::vector<ResolvedOption>& resolved, const std::string& name) {
    return *std::ranges::find(resolved, name, &ResolvedOption::name);
}

TEST(ParseLine, TakesValuesInBothForms) {
    Parsed parsed;
    parsed.resolve({"--batch", "64", "--lr=0.5", "--no-bias"});
    EXPECT_EQ(parsed.options.settings.batch, 64);
    EXPECT_EQ(parsed.options.settings.optimizer.learning_rate, 0.5);
    EXPECT_FALSE(parsed.options.settings.model.bias);
}

TEST(ParseLine, NeverGuessesAbbreviations) {
    Parsed parsed;
    EXPECT_EQ(test::caught_code([&] { parsed.resolve({"--bat", "64"}); }), "E101");
}

TEST(ParseLine, KeepsPositionalsAndSeesHelp) {
    Parsed parsed;
    const ParsedLine line = parse_line({"a", "--seed", "3", "b", "--help"}, parsed.table);
    EXPECT_EQ(line.positionals, (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(line.wants_help);
}

TEST(ParseLine, SuggestsTheNearestOption) {
    Parsed parsed;
    const std::string text = test::caught_text([&] { parsed.resolve({"--bach", "64"}); });
    EXPECT_THAT(text, HasSubstr("E101: unknown option '--bach'"));
    EXPECT_THAT(text, HasSubstr("did you mean '--batch'?"));
}

TEST(ParseLine, RefusesTwoValuesButNotTheSameTwice) {
    Parsed parsed;
    EXPECT_EQ(test::caught_code([&] { parsed.resolve({"--lr", "1", "--lr", "2"}); }), "E104");
    EXPECT_NO_THROW(parsed.resolve({"--lr", "1", "--lr", "1"}));
}

TEST(ParseLine, NamesAnOptionWithoutItsValue) {
    Parsed parsed;
    EXPECT_EQ(test::caught_code([&] { parsed.resolve({"--lr"}); }), "E105");
}

TEST(ResolveOptions, StrongestSourceWinsAndOriginsAreKept) {
    const test::TempDir folder;
    const auto file = folder.file("t.toml", "batch = 32\nseed = 5\nlr = 1\n");
    Parsed parsed;
    const auto resolved = parsed.resolve({"--batch", "64", "--config", file.string()},
                                         {{"LOCKSTEP_BATCH", "128"}, {"LOCKSTEP_SEED", "6"}});
    EXPECT_EQ(parsed.options.settings.batch, 64);
    EXPECT_EQ(parsed.options.settings.seed, 6U);
    EXPECT_EQ(parsed.options.settings.optimizer.learning_rate, 1.0);
    EXPECT_EQ(find(resolved, "batch").origin, "command line");
    EXPECT_EQ(find(resolved, "batch").overridden.size(), 2U);
    EXPECT_EQ(find(resolved, "seed").origin, "LOCKSTEP_SEED");
    EXPECT_THAT(find(resolved, "lr").origin, HasSubstr("t.toml:3:"));
    EXPECT_EQ(find(resolved, "epochs").origin, "default");
}

TEST(ResolveOptions, ConfigMistakesNameTheirPlace) {
    const test::TempDir folder;
    Parsed parsed;
    const auto text_of = [&](const std::string& content) {
        const auto file = folder.file("t.toml", content);
        return test::caught_text([&] { parsed.resolve({"--config", file.string()}); });
    };
    EXPECT_THAT(text_of("momentun = 0.5\n"), HasSubstr("did you mean 'momentum'?"));
    EXPECT_THAT(text_of("seed = 1\nbatch = \"64\"\n"), HasSubstr("t.toml:2:"));
    EXPECT_THAT(text_of("batch = \"64\"\n"), HasSubstr("remove the quotes"));
    EXPECT_THAT(text_of("no-bias = 3\n"), HasSubstr("E112"));
}

struct BadValue {
    const char *option, *value, *code;
};

TEST(ResolveOptions, RefusesBadValuesWithTheirKindOfError) {
    const BadValue bad[] = {{"batch", "ten", "E103"},
                            {"batch", "0", "E102"},
                            {"batch", "1.5", "E103"},
                            {"batch", "99999999999999999999", "E103"},
                            {"lr", "-1", "E102"},
                            {"lr", "nan", "E103"},
                            {"optimizer", "adma", "E103"},
                            {"checkpoint-every", "10", "E103"},
                            {"checkpoint-every", "0steps", "E103"},
                            {"data-memory", "12 parsecs", "E103"},
                            {"data", "", "E105"}};
    for (const BadValue& given : bad) {
        Parsed parsed;
        EXPECT_EQ(test::caught_code([&] {
                      parsed.resolve({std::string("--") + given.option + "=" + given.value});
                  }),
                  given.code)
            << given.option << " = '" << given.value << "'";
    }
}

RC_GTEST_PROP(ParsePeriod, ReadsWhatItWrites, ()) {
    const auto unit =
        *rc::gen::element(Period::Unit::steps, Period::Unit::epochs, Period::Unit::seconds);
    const Period period{unit, *rc::gen::inRange<std::int64_t>(1, 1'000'000)};
    RC_ASSERT(parse_period("p", {period_text(period), "test"}) == period);
}

TEST(OptionsHelp, ShowsEveryOptionWithItsDefaultInHundredColumns) {
    Parsed parsed;
    const std::string help = options_help(parsed.table);
    for (const OptionSection& section : parsed.table)
        for (const Option& option : section.options)
            EXPECT_THAT(help, HasSubstr("--" + option.name));
    EXPECT_THAT(help, HasSubstr("[128]"));
    std::size_t longest = 0;
    for (std::size_t at = 0; at < help.size();) {
        const std::size_t end = std::min(help.find('\n', at), help.size());
        longest = std::max(longest, end - at);
        at = end + 1;
    }
    EXPECT_LE(longest, 100U);
}

}  // namespace
}  // namespace lockstep
