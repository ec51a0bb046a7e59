// SPDX-License-Identifier: Apache-2.0
// `lockstep scale` and `lockstep compare`: of tiny runs of one and two ranks, and of times by hand.
#include "program.hpp"

#include <algorithm>

namespace lockstep::test {
namespace {

constexpr const char* book_times = "1=707,2=393,3=276,4=208,5=172,6=142,7=122,8=109";

std::string said(const Words& words) {
    return output_of(run_lockstep(words));
}

Json told(const Words& words) {
    return parse_json(said(words + Words{"--json"}), "answer");
}

/// Training of the same on one rank and on two, and with another batch.
class ScaleRuns : public testing::Test {
  protected:
    struct Made {
        Made() {
            train("p1", 1, 20);
            train("p2", 2, 20);
            train("batch", 1, 40);
        }
        void train(const std::string& name, int ranks, int batch) const {
            EXPECT_THAT(
                run_lockstep(train_words(train_data(), folder / name, "mlp", batch) +
                             on_ranks(ranks) +
                             typed("--virtual-ranks 2 --epochs 2 --test-data %", {test_data()})),
                ends(0));
        }
        TempDir folder;
    };
    static fs::path run(const std::string& name) {
        static const Made made;
        return made.folder / name;
    }
};

TEST_F(ScaleRuns, HaveATableWhoseLossesSumToWhatIsMissing) {
    const Json scale = told({"scale", run("p1"), run("p2")});
    ASSERT_EQ(scale.at("rows").size(), 2u);
    const Json& two = scale.at("rows")[1];
    EXPECT_EQ(two.at("ranks"), 2);
    EXPECT_EQ(two.at("run"), run("p2").string());
    double sum = 0;
    for (const auto& [name, loss] : two.at("losses").items()) sum += loss.get<double>();
    EXPECT_NEAR(sum, 1 - two.at("efficiency").get<double>(), 1e-9);
    EXPECT_NEAR(two.at("speedup").get<double>() / 2, two.at("efficiency").get<double>(), 1e-9);
    EXPECT_EQ(two.at("epoch_steps"), 30);
    EXPECT_EQ(two.at("test_accuracy"), last_accuracy(run("p2")));
    EXPECT_EQ(scale.at("unit"), "core-hours");
    const std::string text =
        said({"scale", run("p2"), run("p1"), "--forecast", "4", "--cores", "4"});
    EXPECT_THAT(text, ContainsRegex("\n +2 +[0-9.]+ % = 100 [-+] [0-9.]+ "));
    EXPECT_THAT(text, has("test_accuracy", "forecast"));
}

// Every rank says which cores it has: without that, ranks that share them would be taken for ranks
// that do not.
TEST_F(ScaleRuns, RecordTheCoresOfTheirRanks) {
    for (const int rank : {0, 1}) {
        const auto records = json_lines(run("p2") / fmt::format("logs/i1/rank-{:05}.jsonl", rank));
        const auto place = std::ranges::find(
            records, Json("place"), [](const Json& record) { return record.at("event"); });
        ASSERT_NE(place, records.end());
        EXPECT_GE(place->at("cores").get<int>(), 1);
        EXPECT_GE(place->at("sharers").get<int>(), 1);
    }
}

TEST_F(ScaleRuns, AreComparedWithBitsAndWithAccuracy) {
    const Json ranks = told({"compare", run("p1"), run("p2")});
    EXPECT_TRUE(ranks.at("bits").at("equal").get<bool>()) << "the same model on one rank and two";
    EXPECT_EQ(ranks.at("bits").at("step"), 60);
    EXPECT_THAT(ranks.at("verdict").get<std::string>(), has("equal, bit for bit"));
    const auto names = [](const Json& answer) {
        std::vector<std::string> found;
        for (const Json& setting : answer.at("settings"))
            if (setting.at("decides").get<bool>())
                found.push_back(setting.at("name").get<std::string>());
        return found;
    };
    EXPECT_TRUE(names(ranks).empty());

    const Json batches = told({"compare", run("p1"), run("batch")});
    EXPECT_EQ(names(batches), std::vector<std::string>{"batch"});
    const Json& accuracy = batches.at("figures")[0];
    EXPECT_EQ(accuracy.at("name"), "test_accuracy");
    EXPECT_EQ(accuracy.at("at_samples").at("at"), 1200) << "both epochs";
    EXPECT_EQ(accuracy.at("at_updates").at("at"), 30) << "an epoch of the small batch";
    EXPECT_EQ(batches.at("bits").at("step"), 30) << "the newest whose checkpoints both have";
    EXPECT_FALSE(batches.at("bits").at("equal").get<bool>());
    const std::string text = said({"compare", run("p1"), run("batch")});
    EXPECT_THAT(text,
                ContainsRegex("batch +20 \\(command line\\) +40 \\(command line\\) +decides"));
    EXPECT_THAT(text, ContainsRegex("test_accuracy +after 1,200 samples +0\\."));
}

TEST_F(ScaleRuns, AreRefusedWhereTheyTellNothing) {
    const auto refused = [](const Words& words) { return run_lockstep(words).output; };
    EXPECT_THAT(refused({"scale"}), has("error E105: neither runs nor --times"));
    EXPECT_THAT(refused({"scale", run("p1")}), has("error E105: one number of ranks"));
    EXPECT_THAT(refused({"scale", run("p1"), run("p1")}), has("error E106"));
    EXPECT_THAT(refused({"scale", run("batch"), run("p2")}),
                has("error E421: the runs do different work: batch is 40 in"));
    EXPECT_THAT(refused({"scale", run("p1"), "--times", "1=2,2=1"}), has("error E106"));
    EXPECT_THAT(refused({"scale", run("p1"), run("none")}), has("error E201"));
    EXPECT_THAT(refused({"compare", run("p1"), run("none")}), has("error E201"));
    EXPECT_THAT(refused({"compare", run("p1")}), has("error E105"));
    fs::copy(run("p2"), run("cut"), fs::copy_options::recursive);
    for (const char* rank : {"0", "1"})
        fs::remove(run("cut") / fmt::format("logs/i1/rank-0000{}.steps", rank));
    EXPECT_THAT(refused({"scale", run("p1"), run("cut")}), has("error E420"));
    EXPECT_THAT(said({"compare", run("p1"), run("cut")}), has("speed cannot be compared"));
}

TEST(ScaleTimes, OfTheBookGiveItsTableAndForetellItsSixteen) {
    const std::string text = said({"scale", "--times", book_times, "--forecast", "16"});
    EXPECT_TRUE(text.starts_with("distribute over 8 ranks: 6.49 times as fast as 1, 81.1 %"))
        << text;
    for (const char* efficiency :
         {"100.0 %", "89.9 %", "85.4 %", "85.0 %", "82.2 %", "83.0 %", "82.8 %", "81.1 %"})
        EXPECT_THAT(text, has(efficiency));
    EXPECT_TRUE(said({"scale", "--times", book_times, "--forecast", "4"})
                    .starts_with("distribute over 8 ranks: 6.49 times as fast as 1, 81.1 % "
                                 "efficient\n"))
        << "what fewer ranks would take is nothing to go on";
    const Json scale = told({"scale", "--times", book_times, "--forecast", "16"});
    const Json& sixteen = scale.at("forecasts")[0];
    EXPECT_NEAR(sixteen.at("seconds").get<double>(), 64, 6.4);
    EXPECT_LT(sixteen.at("least_s").get<double>(), 64);
    EXPECT_GT(sixteen.at("most_s").get<double>(), 64);
    EXPECT_EQ(scale.at("worth_a_try"), 16);
}

TEST(ScaleTimes, SayWhetherToDistributeAtAll) {
    EXPECT_TRUE(said({"scale", "--times", "1=10,2=11"})
                    .starts_with("stay with one rank; 2 are no faster\n"));
    EXPECT_TRUE(
        said({"scale", "--times", "1=10,2=9"})
            .starts_with("distribute over 2 ranks: 1.11 times as fast as 1, 55.6 % efficient; "));
    EXPECT_TRUE(
        said({"scale", "--times", "1=10,2=9", "--least-efficiency", "80"})
            .starts_with("stay with one rank; 2 would be 55.6 % efficient, less than 80 %"));
}

TEST(ScaleTimes, ForetellNothingOfRanksThatShareCores) {
    const Words times{"scale", "--times", "1=10,2=5.5", "--forecast", "4,8"};
    EXPECT_THAT(said(times), Not(has("share cores")));
    const Words crowded = times + Words{"--cores", "4"};
    EXPECT_THAT(said(crowded), has("\nno forecast of 8 ranks: they would share cores"));
    const Json scale = told(crowded);
    ASSERT_EQ(scale.at("forecasts").size(), 1u);
    EXPECT_EQ(scale.at("forecasts")[0].at("ranks"), 4);
}

TEST(ScaleTimes, ThatAreNoneAreRefused) {
    for (const std::string& times :
         typed("1=707,1=393 1=707,2 1=707,2= 1=707,2=-3 1=707,0=3 1=707,x=3 1=707, 1=707,2=inf "
               "1=707,2=nan 707,393 1=707,2=0 1=707,2=1e300 1=707,2=1e-300"))
        EXPECT_THAT(run_lockstep({"scale", "--times", times}), says("error E103: --times is '"))
            << times;
    EXPECT_THAT(run_lockstep({"scale", "--times", "1=2"}), says("error E105"));
    for (const char* ranks : {"0", "8,", "-1", "many", "1e3"})
        EXPECT_THAT(run_lockstep({"scale", "--times", "1=3,2=2", "--forecast", ranks}),
                    says("error E103: --forecast is '"))
            << ranks;
}

}  // namespace
}  // namespace lockstep::test
