// SPDX-License-Identifier: Apache-2.0
#include "made_up_run.hpp"
#include "report/report_words.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <regex>

namespace lockstep {
namespace {

using test::made_up_cause;
using test::made_up_clues;
using test::made_up_figures;
using test::made_up_report;

// A run without anything to find, which each test spoils.
class Findings : public testing::Test {
  protected:
    std::optional<ReportFinding> found(std::string_view kind) {
        report_ = make_report(run_, clues_);
        const auto it = std::ranges::find(report_.findings, kind, &ReportFinding::kind);
        return it == report_.findings.end() ? std::nullopt : std::optional(*it);
    }
    /// Its title and its command, or "".
    std::string said(std::string_view kind) {
        const auto finding = found(kind);
        return finding ? finding->title + "\n" + finding->command : "";
    }
    /// Each rank spends `seconds` more of each step in `phase`.
    void add_to_all(Phase phase, double seconds) {
        for (RankFigures& rank : run_.ranks)
            for (StepBudget& step : rank.steps) step.phases[phase] += seconds;
    }
    RunTimes& times() { return clues_.status.times; }

    RunFigures run_ = made_up_figures(4, 40);
    ReportClues clues_ = made_up_clues(40);
    Report report_;
};

TEST_F(Findings, AreOneWhereAllIsWell) {
    EXPECT_THAT(said("all_well"), has("nothing stands out: 100 % of a step"));
    EXPECT_EQ(report_.findings.size(), 1u);
}

TEST_F(Findings, BeginWithTheFailure) {
    clues_.cause = made_up_cause();
    clues_.next = "lockstep explain E213";
    add_to_all(Phase::data, 0.010);
    EXPECT_THAT(said("failure"), has("rank 1 on n7: error E213: ", "\nlockstep explain E213"));
    EXPECT_EQ(report_.findings.front().kind, "failure");
    EXPECT_EQ(report_.findings.front().advice, "copy it again");
    clues_.cause.reset();
    clues_.status.condition = RunCondition::lost;
    EXPECT_THAT(said("failure"), has("the run is lost, and no rank says why"));
}

TEST_F(Findings, NameAStragglerWithNodeAndCause) {
    for (StepBudget& step : run_.ranks[2].steps) step.phases[Phase::data] += 0.010;
    for (RankFigures& rank : run_.ranks)
        if (rank.facts.rank != 2)
            for (StepBudget& step : rank.steps) step.phases[Phase::wait] += 0.010;
    EXPECT_THAT(said("straggler"), has("rank 2 on n1 holds the others up by"));
    EXPECT_THAT(said("straggler"), has("its batches come late", "lockstep logs runs/a --rank 2"));
    EXPECT_EQ(said("waiting"), "") << "the straggler is why";
}

TEST_F(Findings, NameUnevenLeaves) {
    EXPECT_EQ(said("uneven_leaves"), "");
    run_ = made_up_figures(3, 40);
    EXPECT_THAT(said("uneven_leaves"),
                has("V = 4 leaves on 3 ranks: 1 of them compute 2, the others 1; at most 67 % of",
                    "lockstep train --np 4"));
    for (RankFigures& rank : run_.ranks) rank.place = {.cores = 2, .sharers = 3};
    EXPECT_THAT(said("uneven_leaves"), has("lockstep train --np 2"))
        << "more ranks would not start where there are too few cores";
}

TEST_F(Findings, NameWaitingThatNoStragglerExplains) {
    add_to_all(Phase::wait, 0.0004);
    EXPECT_EQ(said("waiting"), "");
    add_to_all(Phase::wait, 0.0006);
    EXPECT_THAT(said("waiting"), has("ranks wait 9.1 % of a step for each other (1.00 ms)"));
}

TEST_F(Findings, NameSlowDataAndWhatBindsThem) {
    add_to_all(Phase::data, 0.001);
    EXPECT_EQ(said("data_bound"), "");
    add_to_all(Phase::data, 0.001);
    run_.reports.back().data = {.wait_s = 1, .io_threads = 3, .bound = "decode"};
    EXPECT_THAT(
        said("data_bound"),
        has("a step waits 17 % of its time for data (2.00 ms); what takes longest is decode",
            "lockstep train --io-threads 6 --run runs/a-io-threads"))
        << "a complete run has no steps left";
    clues_.status.condition = RunCondition::checkpointed;
    EXPECT_THAT(said("data_bound"), EndsWith("lockstep train --io-threads 6"));
}

TEST_F(Findings, NameCommunicationAndTimeBesideTraining) {
    add_to_all(Phase::comm, 0.002);
    add_to_all(Phase::other, 0.002);
    EXPECT_THAT(said("communication"), has("a step waits 14 % of its time"));
    EXPECT_THAT(said("communication"), has("mpirun --host n0:2,n1:2 lockstep bench comm"));
    for (RankFigures& rank : run_.ranks) rank.facts.host = "n0";
    EXPECT_THAT(said("communication"), has("lockstep bench comm --np 4"));
    EXPECT_THAT(said("other_time"), has("14 % of a step is in no phase of training"));
    EXPECT_THAT(said("other_time"), has("--log-every 0"));
}

TEST_F(Findings, NameSavingWithAnIntervalThatCostsLess) {
    times().saving = 3;
    EXPECT_EQ(said("saving"), "");
    times().saving = 7;
    run_.ranks[0].steps[20].phases[Phase::checkpoint] = 3.5;
    EXPECT_THAT(said("saving"), has("saving took 7.0 % of the time (7.0s)"));
    EXPECT_THAT(said("saving"), has("--checkpoint-every 100s"));
}

TEST_F(Findings, NameEvaluatingWithARarerInterval) {
    times().evaluating = 20;
    run_.evaluations = {{10, 1, {}}, {20, 2, {}}, {30, 3, {}}};
    EXPECT_THAT(said("evaluating"),
                has("evaluating took 20 % of the time (20.0s for 3 evaluations)"));
    EXPECT_THAT(said("evaluating"), has("--evaluate-every 40steps"));
}

TEST_F(Findings, NameSlowStartsAndFirstSteps) {
    times().starting = 40;
    run_.ranks[1].steps[0].phases[Phase::forward] = 6;
    EXPECT_THAT(said("slow_start"), has("1 start(s) took 40.0s before their first step, 40 %"));
    EXPECT_THAT(said("first_step"), has("the first kept step took 6.01 s, 60"));
}

TEST_F(Findings, NameRestartsAndWhatTheyCost) {
    clues_.status.starts.resize(3, clues_.status.starts.front());
    times().repeated = 10;
    times().down = 5;
    run_.ranks[0].steps[20].phases[Phase::checkpoint] = 1;
    EXPECT_THAT(said("restarts"), has("3 starts: 15.0s between them", "--all-starts"));
    EXPECT_THAT(said("repeated_steps"), has("10 % of the time went into steps"));
    EXPECT_THAT(said("repeated_steps"), has("--checkpoint-every 10s")) << "sqrt(2 * 1 * 50)";
    clues_.status.times = {};
    EXPECT_THAT(said("restarts"), has("3 starts; how much time that took is not known"));
}

TEST_F(Findings, NameALossThatIsNotFinite) {
    run_.reports[3].report.loss = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THAT(said("loss_not_finite"), has("in 1 of 40 reports, first at step 4"));
    EXPECT_THAT(said("loss_not_finite"), has("--lr 0.000333 --run runs/a-lr"));
    EXPECT_EQ(report_.findings.front().weight, FindingWeight::problem);
}

TEST_F(Findings, NameSkippedSteps) {
    run_.reports.back().skipped_steps = 7;
    EXPECT_THAT(said("skipped_steps"), has("7 step(s) were skipped"));
    EXPECT_EQ(found("skipped_steps")->weight, FindingWeight::warning);
    run_.record.deciding["precision"] = "fp16";
    EXPECT_EQ(found("skipped_steps")->weight, FindingWeight::note);
}

TEST_F(Findings, NameATestLossThatRisesAgain) {
    run_.evaluations = {{10, 1, {{"test_loss", 1.0}}},
                        {20, 2, {{"test_loss", 0.5}}},
                        {30, 3, {{"test_loss", 0.54}}}};
    EXPECT_EQ(said("overfitting"), "");
    run_.evaluations.back().figures["test_loss"] = 0.6;
    EXPECT_THAT(said("overfitting"),
                has("the test loss was 0.5 at step 20 and is 0.6 now: 20 % more"));
    EXPECT_THAT(said("overfitting"), has("--keep-best loss --early-stop 5"));
}

TEST_F(Findings, NameDamagedSamplesAndReadsThatWereRepeated) {
    run_.reports[0].data.masked_samples = 2;
    run_.reports[1].data.masked_samples = 3;
    run_.reports[1].data.retries = 4;
    EXPECT_THAT(said("masked_samples"), has("5 damaged sample(s)", "lockstep data verify D/train"));
    EXPECT_THAT(said("read_retries"), has("4 read(s) of rank 0"));
}

TEST_F(Findings, TellWhereStepsAreNotKnown) {
    run_.ranks[3].steps.clear();
    run_.ranks[3].damage = "it holds no steps";
    EXPECT_THAT(said("damaged_steps"), has("the steps of rank 3 are not known: it holds no steps"));
    for (RankFigures& rank : run_.ranks) rank = {.facts = rank.facts};
    EXPECT_THAT(said("no_steps"), has("no rank recorded its steps"));
}

/// Of a run that failed, below a folder whose name is an attack.
Report failed_report() {
    ReportClues clues = made_up_clues(20);
    clues.status.root = "runs/<img src=x onerror=alert(1)>";
    clues.status.condition = RunCondition::failed;
    clues.cause = made_up_cause();
    clues.resume = "lockstep train --run '<b>'";
    return make_report(made_up_figures(4, 20), clues);
}

std::ptrdiff_t count_of(const std::string& text, const std::string& pattern) {
    const std::regex regex(pattern);
    return std::distance(std::sregex_iterator(text.begin(), text.end(), regex),
                         std::sregex_iterator());
}

TEST(ReportText, HasAllOfIt) {
    const std::string text = report_text(failed_report());
    for (const char* part : {"rank 1 on n7: error E213",
                             "consequence       ranks 0,2-3 ended for it",
                             "problem  rank 1 on n7",
                             "  model             mlp",
                             "curves, from the first report to the last",
                             "a step: 10.0 ms on average over 19 steps of start 1",
                             "B backward                 6.00 ms    60 %",
                             "starts: goodput 100 % of 1m40s",
                             "to go on: lockstep train --run '<b>'"})
        EXPECT_THAT(text, has(part));
}

// Each letter is 2 % of the longest step.
TEST(ReportText, DrawsBarsOfLetters) {
    EXPECT_THAT(report_text(made_up_report()),
                has("10.0 ms |" + std::string(15, 'F') + std::string(30, 'B') + "UUUUU| n0"));
}

TEST(ReportText, HasNoControlCharacters) {
    ReportClues clues = made_up_clues(20);
    clues.cause = made_up_cause();
    clues.cause->error.what = clues.status.reason = "red \033[31m\r\nforged: line";
    const std::string text = report_text(make_report(made_up_figures(1, 3), clues));
    EXPECT_EQ(text.find('\033'), text.npos);
    EXPECT_EQ(text.find("\nforged"), text.npos);
}

TEST(ReportMarkdown, EscapesWhatWouldBeMarkup) {
    const std::string text = report_markdown(failed_report());
    EXPECT_THAT(text, has("# runs/\\<img src=x onerror=alert\\(1\\)\\>"));
    EXPECT_THAT(text, has("\\<script\\>alert\\(1\\)\\</script\\>\\|\\`x\\`"));
    EXPECT_THAT(text, has("\n## Where a step goes\n"));
    EXPECT_EQ(count_of(text, "[^\\\\]<"), count_of(text, "    lockstep [^\n]*[^\\\\]<"))
        << "only in blocks of code";
}

TEST(ReportHtml, EscapesWhatWouldBeMarkupAndNeedsNothingFromElsewhere) {
    const std::string page = report_html(failed_report());
    EXPECT_THAT(page, has("&lt;script&gt;alert(1)&lt;/script&gt;"));
    EXPECT_THAT(page, has(Not(has("<script")), Not(has("<img")), Not(has("<b>"))));
    EXPECT_EQ(count_of(page, "(src=|href=|url\\(|@import)"), count_of(page, "&lt;img src=x"));
    EXPECT_THAT(page, has("Content-Security-Policy\" content=\"default-src 'none'"));
}

TEST(ReportHtml, DrawsCurvesAndBars) {
    const std::string page = report_html(made_up_report());
    EXPECT_EQ(count_of(page, "<path class=\"line s0\" d=\"M"), 2) << "loss and speed";
    for (const char* phase : {"forward", "backward", "update"})
        EXPECT_EQ(count_of(page, fmt::format("<rect [^>]*class=\"c-{}\"", phase)), 4) << phase;
    EXPECT_EQ(count_of(page, "class=\"c-wait\""), 0) << "nobody waited";
    EXPECT_EQ(count_of(page, "<path class=\"h1\""), 1) << "all ranks are alike";
    EXPECT_EQ(count_of(page, "<svg "), count_of(page, "role=\"img\" aria-labelledby"));
    EXPECT_THAT(page, Not(has("nan")));
}

TEST(ReportHtml, IsSmallForManyRanksAndSteps) {
    RunFigures run = made_up_figures(256, 300);
    std::uint64_t noise = 1;  // cells that differ from their neighbours take most room
    for (RankFigures& rank : run.ranks)
        for (StepBudget& step : rank.steps) {
            noise = noise * 6364136223846793005 + 1442695040888963407;
            step.phases[Phase::data] = static_cast<double>(noise >> 44) * 2e-8;
        }
    run.reports = made_up_figures(1, 10'000).reports;
    EXPECT_LT(report_html(make_report(run, made_up_clues(10'000))).size(), 512u << 10);
}

TEST(ReportForms, BearARunOfWhichNothingIsKnown) {
    ReportClues clues{.next = "lockstep status runs/a"};
    clues.status.root = "runs/a";
    const Report report = make_report({.root = "runs/a"}, clues);
    EXPECT_EQ(report.outcome, "starting");
    EXPECT_THAT(report_text(report), has("next: lockstep status runs/a"));
    EXPECT_THAT(report_html(report), has("starting", "</html>"));
    EXPECT_THAT(report_markdown(report), has("# runs/a"));
    EXPECT_EQ(report_json(report).at("ranks").size(), 0u);
}

TEST(ReportForms, BearARankWithoutStepsAndFiguresThatAreNotFinite) {
    RunFigures run = made_up_figures(2, 10), odd = run;
    run.ranks[0].steps.clear();
    const Report report = make_report(run, made_up_clues(10));
    EXPECT_THAT(report_text(report), has("  0             - |", Not(has("nan"))));
    EXPECT_THAT(report_html(report), Not(has("nan")));
    EXPECT_THAT(report_markdown(report), Not(has("nan")));
    odd.ranks[1].steps[3].phases[Phase::data] = std::numeric_limits<double>::quiet_NaN();
    odd.ranks[0].steps[3].phases[Phase::data] = std::numeric_limits<double>::infinity();
    const Report of_odd = make_report(odd, made_up_clues(10));
    EXPECT_THAT(report_html(of_odd), has("</html>"));
    EXPECT_FALSE(report_text(of_odd).empty());
    EXPECT_NO_THROW(parse_json(report_json(of_odd).dump(), "report"));
}

std::vector<std::string> ticks_of(const Axis& axis) {
    std::vector<std::string> texts;
    for (const double tick : axis.ticks) texts.push_back(tick_text(axis, tick));
    return texts;
}

TEST(ReportAxis, HasRoundTicksInWordsThatTellThemApart) {
    EXPECT_THAT(ticks_of(linear_axis(0.03, 0.19, 4)),
                ElementsAre("0.00", "0.05", "0.10", "0.15", "0.20"));
    EXPECT_THAT(ticks_of(linear_axis(950, 1360, 4)), ElementsAre("800", "1,000", "1,200", "1,400"));
    EXPECT_THAT(ticks_of(tight_axis(0, 47'000, 5)), ElementsAre("0", "10k", "20k", "30k", "40k"));
    EXPECT_THAT(ticks_of(tight_axis(0, 2.5e6, 5)),
                ElementsAre("0", "0.5M", "1M", "1.5M", "2M", "2.5M"));
    EXPECT_THAT(ticks_of(logarithmic_axis(0.04, 3)),
                ElementsAre("0.05", "0.1", "0.2", "0.5", "1", "2"));
}

TEST(ReportAxis, HasFewTicksHoweverFarItGoesAndSomeForOneValueOrNone) {
    EXPECT_THAT(ticks_of(logarithmic_axis(1e-12, 1)), SizeIs(AllOf(Ge(4u), Le(9u))));
    EXPECT_THAT(ticks_of(logarithmic_axis(std::numeric_limits<double>::denorm_min(), 1e308)),
                SizeIs(AllOf(Ge(4u), Le(9u))));
    EXPECT_GE(linear_axis(3, 3, 4).ticks.size(), 2u);
    EXPECT_GE(linear_axis(0, 0, 4).ticks.size(), 2u);
    EXPECT_FALSE(linear_axis(std::numeric_limits<double>::quiet_NaN(), 1, 4).ticks.empty());
    EXPECT_FALSE(tight_axis(5, 5, 4).ticks.empty());
}

TEST(ReportAxis, PlacesValuesBetweenItsEnds) {
    Axis axis = tight_axis(0, 10, 5, 100, 200);
    EXPECT_DOUBLE_EQ(axis.at(5), 150);
    EXPECT_DOUBLE_EQ(axis.at(1e9), 200);
    axis = logarithmic_axis(0.01, 100);
    EXPECT_NEAR(axis.at(1), 0.5, 1e-9);
    EXPECT_DOUBLE_EQ(axis.at(0), 0);
}

}  // namespace
}  // namespace lockstep
