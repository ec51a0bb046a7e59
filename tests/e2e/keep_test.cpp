// SPDX-License-Identifier: Apache-2.0
// Which checkpoints stay, what one holds, and how one is removed. A resume takes all of the
// checkpoint with which it begins, and nothing of what came after that.
#include "program.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/file.h>

namespace lockstep::test {
namespace {

// The scale of the loss overflows at first, so that it changes in the first steps.
Words kept_words(const fs::path& run, int steps) {
    return train_words(train_data(), run, "mlp", 24) +
           typed("--virtual-ranks 4 --channels 8 --test-data % --max-steps % --log-every 1",
                 {test_data(), std::to_string(steps)}) +
           typed("--checkpoint-every 5steps --evaluate-every 5steps --ema 0.9 --ledger") +
           typed("--precision fp16 --loss-scale 4194304 --keep-best loss") +
           typed("--keep last=1,every=10steps --keep best=2");
}

// "kept" by step, as `ckpt ls` says.
std::map<std::int64_t, std::string> kept_in(const fs::path& run) {
    std::map<std::int64_t, std::string> kept;
    std::istringstream lines(run_lockstep({"ckpt", "ls", run}).output);
    std::string head, line;
    std::getline(lines, head);
    const std::size_t at = head.find("kept"), end = head.find("evaluated");
    while (std::getline(lines, line)) {
        std::string text = line.substr(at, end - at);
        text.erase(text.find_last_not_of(' ') + 1);
        kept[std::stoll(line)] = text;
    }
    return kept;
}

std::vector<std::string> evaluations_of(const fs::path& run) {
    std::vector<std::string> lines;
    for (const Json& line : json_lines(run / "metrics.jsonl"))
        if (line.contains("test_loss")) lines.push_back(line.dump());
    return lines;
}

// Two runs of one epoch: one that went through, and one whose checkpoint of step 15 was damaged.
class Kept : public RunsTest {
  protected:
    struct Made {
        Made() {
            run_lockstep(kept_words(cut, 15));
            first_events = event_files(cut);
            flip_last_byte(cut / "ckpt/step-000015/shard-00000-of-00001.safetensors");
            resumed_output = run_lockstep(kept_words(cut, 25)).output;
        }
        TempDir folder;
        fs::path whole = folder / "whole", cut = folder / "cut";
        std::string whole_output = run_lockstep(kept_words(whole, 25)).output, resumed_output;
        std::vector<fs::path> first_events;
    };
    static const Made& made() {
        static const Made made;
        return made;
    }

    static std::vector<fs::path> event_files(const fs::path& run) {
        std::vector<fs::path> files;
        for (const auto& entry : fs::directory_iterator(run))
            if (entry.path().filename().string().starts_with("events.")) files.push_back(entry);
        return files;
    }

    fs::path copied() const {
        fs::copy(made().whole, run_, fs::copy_options::recursive);
        return run_;
    }
};

TEST_F(Kept, ResumeFromAnOlderOneTakesItsState) {
    const fs::path whole = made().whole, cut = made().cut;
    ASSERT_THAT(made().resumed_output,
                has("checkpoint step-000015 is skipped", "resumed from step 10 "));
    EXPECT_EQ(printed_hash(made().resumed_output), printed_hash(made().whole_output));
    // Averages, optimizer state, counters.
    EXPECT_THAT(run_lockstep({"ckpt", "diff", whole, cut}), ends(0));
    const Json one = manifest_of(whole, 25).at("state"), other = manifest_of(cut, 25).at("state");
    for (const char* part : {"best", "loss_scale", "evaluated", "order", "updates", "counters"})
        EXPECT_EQ(one.at(part), other.at(part)) << part;
    EXPECT_NE(one.at("loss_scale").at("factor"), Json(4194304.0)) << "it changes in this run";
    EXPECT_EQ(one.at("best").at("next").size(), 1u);
}

TEST_F(Kept, ResumeFromAnOlderOneLeavesNoFutureInItsRecords) {
    const fs::path cut = made().cut;
    EXPECT_EQ(training_steps(cut), all_steps(25));
    EXPECT_EQ(evaluations_of(cut), evaluations_of(made().whole));
    EXPECT_THAT(run_lockstep({"data", "ledger", cut}), ends(0, "every sample exactly once"));
    const auto is_later = [](const fs::path& file) {
        return std::ranges::count(made().first_events, file) == 0;
    };
    const auto files = event_files(cut);
    ASSERT_EQ(std::ranges::count_if(files, is_later), 1);
    // A session that starts at step 11 makes TensorBoard drop earlier files' steps from there on.
    EXPECT_THAT(content_of(*std::ranges::find_if(files, is_later)),
                has("\x10\x0b\x3a\x02\x08\x01"));
}

TEST_F(Kept, OnesAreListedWithWhatKeepsThem) {
    using Map = std::map<std::int64_t, std::string>;
    EXPECT_EQ(kept_in(made().whole),
              (Map{{10, "every"}, {20, "best, every"}, {25, "newest, best"}}));
    EXPECT_EQ(kept_in(made().cut),
              (Map{{10, "every, read"}, {20, "best, every"}, {25, "newest, best"}}));
    EXPECT_THAT(run_lockstep({"ckpt", "ls", made().whole}),
                says("every         accuracy ", "best loss "));
}

TEST_F(Kept, OneIsShownWithAllItHolds) {
    const fs::path whole = made().whole;
    const std::string shown = output_of(run_lockstep({"ckpt", "inspect", whole, "--json"}));
    const Json facts = parse_json(shown, "facts");
    EXPECT_EQ(facts.at("state"), manifest_of(whole, 25).at("state"));
    EXPECT_EQ(facts.at("state").at("contract").at("deciding").at("batch"), Json(24));
    EXPECT_TRUE(facts.at("versions").contains("lockstep"));
    std::uint64_t bytes = 0, files = 0;
    for (const Json& tensor : facts.at("tensors")) bytes += tensor.at("bytes").get<std::uint64_t>();
    for (const auto& [name, size] : facts.at("files").items()) files += size.get<std::uint64_t>();
    EXPECT_EQ(bytes, files);
    EXPECT_THAT(run_lockstep({"ckpt", "inspect", whole / "ckpt/step-000010"}),
                says(ContainsRegex("\n  step +10, after [0-9]+ updates\n"),
                     "\n  written by  1 rank of 4 virtual ranks\n",
                     ContainsRegex("\n  fc1.weight +f32 +\\[[0-9]+,784\\] +[0-9,]+\n")));
}

TEST_F(Kept, OneIsExportedByTheCommandForAllWeights) {
    EXPECT_THAT(run_lockstep({"ckpt", "export", made().whole}), says("fix: lockstep export\n"));
    EXPECT_THAT(run_lockstep(typed("export % --step 10 --average --out %",
                                   {made().whole, folder_ / "w.safetensors"})),
                says("exported 4 tensors of step 10 to "));
}

TEST_F(Kept, OnesAreRemovedButForTheLastWholeOne) {
    const fs::path run = copied();
    EXPECT_THAT(run_lockstep({"ckpt", "rm", run, "10", "20", "25"}),
                ends(65, "error E303: no whole checkpoint would be left"));
    EXPECT_THAT(run_lockstep({"ckpt", "rm", run, "10", "15"}), ends(66)) << "there is no 15";
    EXPECT_THAT(run_lockstep({"ckpt", "rm", run, "newest", "--dry-run"}),
                says(ContainsRegex("step 25 +[0-9.]+ [kKM]+iB +newest, best\nwould free")));
    EXPECT_EQ(kept_in(run).size(), 3u);
    EXPECT_THAT(run_lockstep({"ckpt", "rm", run, "newest"}),
                ends(0, "the run goes on from step 20\n"));
    EXPECT_THAT(content_of(run / "latest"), StartsWith("step-000020 "));
    flip_last_byte(run / "ckpt/step-000020/shard-00000-of-00001.safetensors");
    EXPECT_THAT(run_lockstep({"ckpt", "rm", run, "10"}), says("that of step 10 is"));
    EXPECT_THAT(run_lockstep({"ckpt", "rm", run, "20"}), says("goes on from step 10"));
    EXPECT_EQ(kept_in(run).size(), 1u);
    const ProcessResult resumed = run_lockstep({"train", "--resume", run});
    EXPECT_THAT(resumed, says("resumed from step 10 ", Not(has("longer"))));
    EXPECT_EQ(printed_hash(resumed.output), printed_hash(made().whole_output));
    EXPECT_EQ(training_steps(run), all_steps(25));
}

TEST_F(Kept, NewestOfARunOfAnEarlierVersionStayAsMany) {
    const fs::path run = copied();
    Json record = read_json(run / "run.json");
    record["config"]["keep-checkpoints"] = {{"value", "7"}, {"origin", "command line"}};
    record["config"].erase("keep");
    write_file_atomically(run / "run.json", record.dump(2));
    EXPECT_THAT(run_lockstep({"config", "show", "--resume", run}), says("keep = \"last=7\""));
}

TEST_F(Kept, NoneIsRemovedFromARunThatIsHeld) {
    const fs::path run = copied();
    const UniqueFd lock(::open((run / "run.lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(lock.value(), LOCK_EX | LOCK_NB), 0);
    EXPECT_THAT(run_lockstep({"ckpt", "rm", run, "10"}), ends(69, "error E404"));
    EXPECT_EQ(kept_in(run).size(), 3u);
}

}  // namespace
}  // namespace lockstep::test
