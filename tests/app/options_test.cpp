// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"
#include "lockstep/core/split.hpp"

#include "command.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

// A small command: one option of each kind, and --config.
struct Example {
    int batch = 128;
    double rate = 0.5;
    bool plain = false;
    std::string name = "cnn";
    std::filesystem::path config;

    OptionTable table() {
        return {{"Numbers",
                 {whole_option("batch", batch, {1, 1000}, "samples of a step"),
                  real_option("learning-rate", rate, {0, 1}, "of the optimizer")}},
                {"Others",
                 {flag_option("plain", plain, "sum as ranks come"),
                  text_option("name NAME", name, "of the model"),
                  path_option("config FILE", config, "file with options")}}};
    }
};

ParsedLine parsed(const std::vector<std::string>& words) {
    return parse_line(words, Example().table());
}

std::string refusal_of(const std::vector<std::string>& words) {
    return caught_text([&] { parsed(words); });
}

std::vector<ResolvedOption> resolved(Example& example,
                                     const std::vector<std::string>& words,
                                     std::map<std::string, std::string> variables = {}) {
    const OptionTable table = example.table();
    return resolve_options(table, parse_line(words, table), Environment(std::move(variables)));
}

const ResolvedOption& option_of(const std::vector<ResolvedOption>& all, const std::string& name) {
    return *std::ranges::find(all, name, &ResolvedOption::name);
}

TEST(ParseLine, SplitsOptionsFromTheRest) {
    const ParsedLine line = parsed({"first", "--batch", "64", "--name=mlp", "second", "--plain"});
    EXPECT_THAT(line.positionals, ElementsAre("first", "second"));
    EXPECT_EQ(line.options.at("batch"), "64");
    EXPECT_EQ(line.options.at("name"), "mlp");
    EXPECT_EQ(line.options.at("plain"), "true");
    EXPECT_FALSE(line.wants_help);
}

TEST(ParseLine, HearsAskingForHelpAndTakesNegativeNumbersAsValues) {
    EXPECT_TRUE(parsed({"--help"}).wants_help);
    EXPECT_TRUE(parsed({"--batch", "1", "-h"}).wants_help);
    EXPECT_EQ(parsed({"--learning-rate", "-0.5"}).options.at("learning-rate"), "-0.5");
}

TEST(ParseLine, SuggestsTheNearestOptionAlsoForNamesOfOtherPrograms) {
    const std::string nearest =
        "lockstep: error E101: unknown option '--bacth'\n  fix: did you mean '--batch'?";
    EXPECT_EQ(refusal_of({"--bacth", "64"}), nearest);
    EXPECT_EQ(refusal_of({"--bacth=64"}), nearest);
    EXPECT_EQ(refusal_of({"--zzzzzzzzz"}),
              "lockstep: error E101: unknown option '--zzzzzzzzz'\n  fix: see --help");
    EXPECT_THAT(refusal_of({"--batch-size", "64"}), HasSubstr("fix: did you mean '--batch'?"));
    EXPECT_THAT(refusal_of({"--bat", "64"}), HasSubstr("error E101: ")) << "an abbreviation";
    TrainOptions options;
    EXPECT_THAT(
        caught_text([&] { parse_line({"--learning-rate=0.1"}, train_option_table(options)); }),
        HasSubstr("fix: did you mean '--lr'?"));
}

// As the flags of earlier versions became words of one option.
TEST(ParseLine, KnowsAWordThatOnlyOneOptionTakes) {
    std::vector<std::string> faults, others;
    const OptionTable table = {{"All",
                                {some_option("fault", faults, {"preempt", "all"}, ""),
                                 some_option("beside", others, {"ring", "all"}, "")}}};
    EXPECT_EQ(caught_text([&] { parse_line({"--preempt"}, table); }),
              "lockstep: error E101: unknown option '--preempt'\n"
              "  why: it is a value of --fault\n  fix: --fault preempt");
    EXPECT_THAT(caught_text([&] { parse_line({"--all"}, table); }), HasSubstr("fix: see --help"));
}

TEST(ParseLine, RefusesTwoValuesNoneAndOneForAFlag) {
    EXPECT_EQ(refusal_of({"--batch", "1", "--batch", "2"}),
              "lockstep: error E104: --batch is given twice ('1' and '2')\n"
              "  why: it takes one value\n  fix: drop one of them");
    EXPECT_EQ(parsed({"--batch", "1", "--batch", "1"}).options.at("batch"), "1");
    EXPECT_THAT(refusal_of({"--plain", "--batch"}),
                HasSubstr("error E105: --batch needs a value\n"));
    EXPECT_THAT(refusal_of({"--plain=yes"}), HasSubstr("error E103: "));
}

TEST(ParseLine, KeepsEachValueOfAnOptionThatRepeats) {
    std::vector<std::string> files;
    const Environment no_environment(std::map<std::string, std::string>{});
    const OptionTable table = {{"Input", {list_option("file FILE", files, "to be read")}}};
    const ParsedLine line = parse_line({"--file", "b", "--file=a", "--file", "b"}, table);
    const auto resolved = resolve_options(table, line, no_environment);
    EXPECT_THAT(files, ElementsAre("b", "a", "b"));
    EXPECT_EQ(resolved.at(0).text, "b,a,b");
    EXPECT_EQ(resolved.at(0).origin, "command line");
    EXPECT_THAT(options_help(table), HasSubstr("to be read; may be given several times"));
    EXPECT_EQ(caught_code(
                  [&] { resolve_options(table, parse_line({"--file="}, table), no_environment); }),
              "E105");
}

TEST(ParseLine, TakesANameWithOneDashAsMpirunDoes) {
    int np = 1;
    const OptionTable table = {{"Ranks", {whole_option("np", np, {1, 10}, "ranks")}}};
    EXPECT_EQ(parse_line({"-np", "4"}, table).options.at("np"), "4");
    EXPECT_EQ(caught_code([&] { parse_line({"-npp", "4"}, table); }), "E101");
}

TEST(ParseLine, KnowsLettersThatAreShortForAName) {
    int size = 1;
    const OptionTable table = {{"Sizes", {whole_option("size,s", size, {1, 10}, "of a message")}}};
    EXPECT_EQ(parse_line({"-s", "4"}, table).options.at("size"), "4");
    EXPECT_EQ(parse_line({"--size=4"}, table).options.at("size"), "4");
    EXPECT_TRUE(parse_line({"-h"}, table).wants_help);
    EXPECT_EQ(caught_code([&] { parse_line({"-s", "4", "--size", "5"}, table); }), "E104");
    EXPECT_EQ(caught_code([&] { parse_line({"-z", "4"}, table); }), "E101");
    EXPECT_EQ(options_help(table), "\nSizes:\n  -s, --size N                  of a message [1]\n");
}

TEST(ResolveOptions, GoesByCommandLineThenVariableThenFileThenDefaultAndKeepsWhatIsOverridden) {
    const TempDir folder;
    const std::string config = folder.file("a.toml", "batch = 1\nname = \"file\"\n").string();
    Example example;
    const auto all = resolved(example,
                              {"--batch", "3", "--config", config},
                              {{"LOCKSTEP_BATCH", "2"}, {"LOCKSTEP_LEARNING_RATE", "0.25"}});
    EXPECT_EQ(example.batch, 3);
    EXPECT_EQ(example.rate, 0.25);
    EXPECT_EQ(example.name, "file");
    EXPECT_FALSE(example.plain);
    EXPECT_EQ(option_of(all, "batch").origin, "command line");
    EXPECT_EQ(option_of(all, "learning-rate").origin, "LOCKSTEP_LEARNING_RATE");
    EXPECT_EQ(option_of(all, "name").origin, config + ":2:8");
    EXPECT_EQ(option_of(all, "plain").origin, "default");
    const auto& weaker = option_of(all, "batch").overridden;
    ASSERT_EQ(weaker.size(), 2u);
    EXPECT_EQ(weaker[0].text, "2");
    EXPECT_EQ(weaker[1].text, "1");
}

TEST(ResolveOptions, BlamesTheVariable) {
    Example example;
    EXPECT_EQ(caught_text([&] {
                  resolved(example, {}, {{"LOCKSTEP_BATCH", ""}});
              }),
              "lockstep: error E113: LOCKSTEP_BATCH is ''\n"
              "  why: it is not a whole number\n"
              "  fix: unset LOCKSTEP_BATCH, or set it to what --batch takes");
}

TEST(ResolveOptions, RefusesAFileWithAnUnknownKeyOrAWrongType) {
    const TempDir folder;
    const auto code = [&](const std::string& text) {
        Example example;
        const std::string config = folder.file("a.toml", text).string();
        return caught_code([&] { resolved(example, {"--config", config}); });
    };
    for (const char* unknown : {"bacth = 1\n", "config = \"b.toml\"\n"})
        EXPECT_EQ(code(unknown), "E111") << unknown;
    for (const char* wrong : {"batch = \"1\"\n",
                              "batch = 1.5\n",
                              "batch = [1]\n",
                              "plain = 1\n",
                              "name = true\n",
                              "name = [1, \"a\"]\n",
                              "name = [[1]]\n",
                              "name = 2026-11-30\n",
                              "learning-rate = nan\n"})
        EXPECT_EQ(code(wrong), "E112") << wrong;
    EXPECT_EQ(code("learning-rate = 1\n"), "");
    EXPECT_EQ(code("batch = = 1\n"), "E110");
}

TEST(ResolveOptions, SaysHowAKeyOfASectionIsWritten) {
    const TempDir folder;
    const std::string file = folder.file("a.toml", "[train]\nbatch = 1\n").string();
    EXPECT_EQ(caught_text([&] {
                  Example example;
                  resolved(example, {"--config", file});
              }),
              "lockstep: error E111: " + file +
                  ":2:9: unknown key 'train.batch'\n"
                  "  why: a file of --config has no sections\n"
                  "  fix: write 'batch' above all sections");
    Example example;
    resolved(example, {"--config", folder.file("b.toml", "batch = 1\n").string()});
    EXPECT_EQ(example.batch, 1);
}

TEST(ResolveOptions, TakesAListOfAFileAsTextWithCommas) {
    const TempDir folder;
    const auto name = [&](const std::string& list) {
        Example example;
        resolved(example, {"--config", folder.file("a.toml", "name = " + list + "\n").string()});
        return example.name;
    };
    EXPECT_EQ(name("[8, 16,\n 0.5]"), "8,16,0.5");
    EXPECT_EQ(name("[\"a*\", \"b\"]"), "a*,b");
    EXPECT_EQ(name("[]"), "");
}

TEST(OptionsHelp, ShowsSectionsValuesAndDefaults) {
    Example example;
    EXPECT_EQ(options_help(example.table()),
              "\nNumbers:\n"
              "  --batch N                     samples of a step [128]\n"
              "  --learning-rate X             of the optimizer [0.5]\n"
              "\nOthers:\n"
              "  --plain                       sum as ranks come\n"
              "  --name NAME                   of the model [cnn]\n"
              "  --config FILE                 file with options\n");
}

TEST(OptionsHelp, ShowsEveryOptionOfTrainInAHundredColumns) {
    TrainOptions options;
    const OptionTable table = train_option_table(options);
    const std::string help = options_help(table);
    for (const OptionSection& section : table)
        for (const Option& option : section.options)
            EXPECT_THAT(help, HasSubstr("--" + option.name));
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(TrainOptions, RefuseBadValuesWithTheirKindOfError) {
    const std::vector<std::array<std::string, 2>> bad = {{"--batch=ten", "E103"},
                                                         {"--batch=0", "E102"},
                                                         {"--lr=-1", "E102"},
                                                         {"--optimizer=adma", "E103"},
                                                         {"--checkpoint-every=10", "E103"},
                                                         {"--data-memory=12 parsecs", "E103"},
                                                         {"--data=", "E105"}};
    for (const auto& [word, code] : bad) {
        TrainOptions options;
        const OptionTable table = train_option_table(options);
        EXPECT_EQ(caught_code([&] {
                      resolve_options(table,
                                      parse_line({word}, table),
                                      Environment(std::map<std::string, std::string>{}));
                  }),
                  code)
            << word;
    }
}

RC_GTEST_PROP(ParsePeriod, ReadsWhatItWrites, ()) {
    const auto unit =
        *rc::gen::element(Period::Unit::steps, Period::Unit::epochs, Period::Unit::seconds);
    const Period period{unit, *rc::gen::inRange<std::int64_t>(1, 1'000'000)};
    RC_ASSERT(parse_period("p", {period_text(period), "test"}) == period);
}

std::vector<std::string> unread(std::map<std::string, std::string> variables) {
    std::vector<std::string> texts;
    for (const auto& [name, meant] :
         unread_variables(all_commands(), Environment(std::move(variables))))
        texts.push_back(name + " for " + meant);
    return texts;
}

TEST(UnreadVariables, AreNearToOnesThatAreRead) {
    EXPECT_THAT(unread({{"LOCKSTEP_LRR", "0.02"},
                        {"LOCKSTEP_LR", "0.02"},
                        {"LOCKSTEP_batch", "2"},
                        {"LOCKSTEP_LEARNING_RATE", "2"},
                        {"LOCKSTEP_NCC_LIB", "x"},
                        {"LOCKSTEP_QUANTUM_TUNNEL", "1"}}),
                ElementsAre("LOCKSTEP_LEARNING_RATE for LOCKSTEP_LR",
                            "LOCKSTEP_LRR for LOCKSTEP_LR",
                            "LOCKSTEP_NCC_LIB for LOCKSTEP_NCCL_LIB",
                            "LOCKSTEP_batch for LOCKSTEP_BATCH"));
}

// Of libraries, scripts, jobs and tests.
TEST(UnreadVariables, AreNoneOfLockstepItself) {
    std::map<std::string, std::string> variables;
    for (const std::string& name :
         split("BOUND BUILD CACHE CLUSTER CONTAINER CONTAINER_RUNTIME CUDA_LIB DEADLINE FUZZ_S "
               "H5PROBE HOSTILE_FILES JOBS LAUNCHER LAUNCHER_PID LAUNCHER_WAIT MACHINE MPI "
               "NCCL_LIB ON_TERMINAL OVERSUBSCRIBE PROGRAM RANK_ENDS ROOT SELFTEST_GPU "
               "SITE_CONFIG START_TIMEOUT TALLY TEST_CHANGED TEST_CODE TEST_DEADLINE_S "
               "TEST_KEPT TEST_VARIABLE THREADS TORCH TORCH_CUDA_LIB",
               ' '))
        variables["LOCKSTEP_" + name] = "";
    EXPECT_THAT(unread(variables), ElementsAre());
}

class StandingConfigs : public InFolder {
  protected:
    StandingConfigs() { make_directories(folder_.path() / ".config/lockstep"); }

    std::vector<Config> values(Command command) {
        return standing_values(command,
                               all_commands(),
                               Environment({{"HOME", folder_.path().string()},
                                            {"LOCKSTEP_SITE_CONFIG", site_.string()}}));
    }

    std::filesystem::path site_;
};

TEST_F(StandingConfigs, NeedNotExistAndAreTheUsersAndThenTheSites) {
    EXPECT_TRUE(values(train_command()).empty());
    site_ = folder_.path() / "missing.toml";
    EXPECT_EQ(caught_code([&] { values(train_command()); }), "E116");
    site_ = folder_.file("site.toml", "[train]\nlr = 0.25\n");
    const auto user = folder_.file(".config/lockstep/config.toml", "[train]\nlr = 0.5\n");
    const auto found = values(train_command());
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].at("lr").origin, user.string() + ":2:6");
    EXPECT_EQ(found[1].at("lr").origin, site_.string() + ":2:6");
}

TEST_F(StandingConfigs, KeepEachCommandsOptionsApartButTrainsServeThoseThatTakeThemAlong) {
    site_ = folder_.file("site.toml", "[train]\nbatch = 64\n[data.inspect]\nbatch = 32\n");
    EXPECT_EQ(config_text(values(train_command())[0].at("batch").value), "64");
    EXPECT_EQ(config_text(values(data_inspect_command())[0].at("batch").value), "32");
    EXPECT_TRUE(values(doctor_command())[0].empty());
    site_ = folder_.file("site.toml", "[train]\nbatch = 64\nlr = 0.5\n[verify]\nlr = 0.25\n");
    const Config found = values(verify_command())[0];
    EXPECT_EQ(config_text(found.at("batch").value), "64");
    EXPECT_EQ(config_text(found.at("lr").value), "0.25");
}

TEST_F(StandingConfigs, KnowEveryTableAndKey) {
    site_ = folder_.file("site.toml", "[trian]\nlr = 0.5\n");
    EXPECT_EQ(caught_text([&] { values(train_command()); }),
              "lockstep: error E111: " + site_.string() +
                  ":2:6: unknown key 'trian.lr'\n"
                  "  why: options stand in a table with their command's name, such as [train]\n"
                  "  fix: did you mean 'train.lr'?");
    site_ = folder_.file("flat.toml", "lr = 0.5\n");
    EXPECT_EQ(caught_code([&] { values(doctor_command()); }), "E111");
    site_ = folder_.file("config.toml", "[train]\nconfig = \"a.toml\"\n");
    EXPECT_EQ(caught_code([&] { values(train_command()); }), "E111");
}

}  // namespace
}  // namespace lockstep
