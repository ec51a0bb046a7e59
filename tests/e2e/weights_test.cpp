// SPDX-License-Identifier: Apache-2.0
// Weights out of a run, and into another. Which checkpoints stay, what one holds, and how one is
// removed. A resume takes all of the checkpoint with which it begins, and nothing of what came
// after that.
#include "program.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/file.h>

namespace lockstep::test {
namespace {

// One step; with more words, which may repeat an option, another one.
Words train(const fs::path& run, const std::string& rate) {
    return typed(
        "train --data % --run % --model mlp --optimizer sgd --lr % --seed 5 --max-steps 1 "
        "--skip-checks all",
        {train_data(), run, rate});
}

class Weights : public RunsTest {
  protected:
    // A run of one step, and its weights: each test has a copy.
    struct Made {
        Made() {
            EXPECT_THAT(
                run_lockstep({"export", folder / "first", "--out", folder / "w.safetensors"}),
                ends(0, "tensors of step 1 to"));
        }
        TempDir folder;
        std::string hash = printed_hash(output_of(run_lockstep(train(folder / "first", "0.1"))));
    };
    void SetUp() override {
        static const Made made;
        hash_ = made.hash;
        ASSERT_EQ(hash_.size(), 32u);
        fs::copy(made.folder.path(), folder_.path(), fs::copy_options::recursive);
    }
    ProcessResult exported(const Words& more) {
        return run_lockstep(Words{"export", folder_ / "first"} + more);
    }
    Words loading(const std::string& run, const std::string& rate = "0") {
        return train(folder_ / run, rate) + Words{"--load-weights", file_};
    }

    const fs::path file_ = folder_ / "w.safetensors";
    std::string hash_;
};

// A step at a rate of 0 changes no weight.
TEST_F(Weights, OfOneRunBeginAnother) {
    EXPECT_EQ(printed_hash(output_of(run_lockstep(loading("second")))), hash_);
    EXPECT_NE(printed_hash(run_lockstep(train(folder_ / "none", "0")).output), hash_);

    EXPECT_THAT(run_lockstep(train(folder_ / "second", "0")), ends(0)) << "the checkpoint has them";
    EXPECT_THAT(run_lockstep(loading("none")), says("E306")) << "it began with others";
    fs::resize_file(file_, fs::file_size(file_) - 4);
    EXPECT_THAT(run_lockstep(loading("second")), says("E306", "load-weights"));
    EXPECT_THAT(run_lockstep(loading("third")), says("E309"));
    EXPECT_FALSE(fs::exists(folder_ / "third" / "run.json"));
    fs::remove(file_);
    EXPECT_EQ(printed_hash(run_lockstep(loading("second")).output), hash_) << "nor is it needed";
    EXPECT_THAT(run_lockstep(loading("third")), says("E201"));
}

TEST_F(Weights, ThatDoNotFitAreNamedOrSkipped) {
    EXPECT_THAT(run_lockstep(loading("small") + Words{"--no-bias"}),
                says("E304", "not in the model: "));
    EXPECT_THAT(run_lockstep(loading("small") + Words{"--no-bias", "--load-skip", "*bias"}),
                ends(0));
    EXPECT_THAT(run_lockstep(train(folder_ / "idle", "0") + Words{"--load-skip", "*bias"}),
                says("E107: --load-skip has no effect"));
}

TEST_F(Weights, ThatAreLoadedAreCounted) {
    EXPECT_THAT(run_lockstep(loading("some") + Words{"--load-skip", "fc2.*"}),
                says("weights: 2 of 4 tensors of the model loaded from '",
                     "w.safetensors', 2 of its 4 not used"));
    EXPECT_THAT(run_lockstep(loading("typo") + Words{"--load-skip", "typo.*"}),
                ends(64, "E107: --load-skip 'typo.*' has no effect"));
    EXPECT_THAT(run_lockstep(loading("none") + Words{"--load-skip", "*"}),
                ends(64, "E107: --load-skip '*' leaves nothing to load"));
}

// As DistributedDataParallel makes names.
constexpr const char* prefixing_script = R"(
import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
size = struct.unpack('<Q', raw[:8])[0]
header = {'module.' + name: place for name, place in json.loads(raw[8:8 + size]).items()
          if name != '__metadata__'}
text = json.dumps(header).encode()
open(sys.argv[2], 'wb').write(struct.pack('<Q', len(text)) + text + raw[8 + size:])
)";

constexpr const char* prefixing_npz = R"(
import sys, zipfile
old, new = zipfile.ZipFile(sys.argv[1]), zipfile.ZipFile(sys.argv[2], 'w')
for name in old.namelist():
    new.writestr('module.' + name, old.read(name))
new.close()
)";

TEST_F(Weights, OfOtherNamesAreRenamedByThePrintedOptionOrCommand) {
    if (find_program("python3").empty()) GTEST_SKIP() << "no python3";
    const fs::path script = folder_.file("prefix.py", prefixing_script),
                   ddp = folder_ / "ddp.safetensors";
    ASSERT_THAT(run_process({"python3", script, file_, ddp}), ends(0));
    EXPECT_THAT(run_lockstep(train(folder_ / "second", "0") + Words{"--load-weights", ddp}),
                says("E304",
                     "why: names begin with 'module.' in the file only",
                     "fix: give --load-prefix module., too"));
    EXPECT_EQ(printed_hash(run_lockstep(train(folder_ / "third", "0") +
                                        Words{"--load-weights", ddp, "--load-prefix", "module."})
                               .output),
              hash_);
    const fs::path npz = folder_ / "w.npz", other = folder_ / "ddp.npz";
    ASSERT_THAT(exported({"--out", npz, "--format", "npz"}), ends(0));
    ASSERT_THAT(run_process({"python3", "-c", prefixing_npz, npz, other}), ends(0));
    for (const fs::path& file : {ddp, other}) {
        const ProcessResult evaluation =
            run_lockstep({"eval", folder_ / "first", "--data", test_data(), "--weights", file});
        const std::string command = line_from(evaluation.output, "python3 -c");
        ASSERT_NE(command, "") << evaluation.output;
        EXPECT_THAT(in_shell(folder_.path(), command), ends(0));
        const fs::path made = folder_ / ("ddp.new" + file.extension().string());
        const Words loading_it = train(folder_ / ("run" + file.extension().string()), "0") +
                                 Words{"--load-weights", made};
        EXPECT_EQ(printed_hash(run_lockstep(loading_it).output), hash_) << file;
    }
}

TEST_F(Weights, OfARunsFolderAndItsShardsAreExported) {
    const auto loaded = [&](const fs::path& file) {
        return run_lockstep(train(folder_ / "second", "0") + Words{"--load-weights", file}).output;
    };
    const std::string command = "'lockstep export " + (folder_ / "first").string() +
                                " --out weights.safetensors', and give that";
    EXPECT_THAT(loaded(folder_ / "first"), has("E206", command));
    EXPECT_THAT(loaded(folder_ / "first/ckpt/step-000001/shard-00000-of-00001.safetensors"),
                has("E304", command));
    EXPECT_THAT(run_lockstep(typed("eval % --data % --weights %",
                                   {folder_ / "first", train_data(), folder_ / "first"})),
                says(command));
    folder_.file("w.npz", "PK\x03\x04");
    EXPECT_THAT(loaded(folder_ / "w.npz"), has("it begins like a zip archive"));
}

TEST_F(Weights, AreExportedAsTold) {
    EXPECT_THAT(exported({}), says("E105: --out is missing"));
    EXPECT_THAT(exported({"--out", folder_ / "w.pth"}),
                says("E106: --out ends in .pth, which no --format writes"));
    EXPECT_FALSE(fs::exists(folder_ / "w.pth"));
    EXPECT_THAT(exported({"--out", file_}), says("E407: '" + file_.string() + "'"));
    folder_.file("y.json", "mine");
    EXPECT_THAT(exported({"--out", folder_ / "y"}), says("E407"));
    EXPECT_FALSE(fs::exists(folder_ / "y"));
    EXPECT_THAT(exported({"--out", folder_ / "x", "--step", "9"}),
                says("E301: there is no checkpoint of step 9\n  why: the newest is of step 1"));
    EXPECT_THAT(run_lockstep({"export", folder_ / "none", "--out", folder_ / "x"}), says("E201"));
    EXPECT_THAT(exported({"--out", folder_ / "x", "--average"}),
                says("E106: --average does not go with this run"));
    EXPECT_THAT(exported({"--out", folder_ / "x", "--average", "--all"}),
                says("E106: --all and --average are both given"));
    const fs::path all = folder_ / "all.safetensors";
    EXPECT_THAT(exported({"--out", all, "--all"}), ends(0));
    EXPECT_GT(fs::file_size(all), 3 * fs::file_size(file_) / 2) << "momentum is as large";
    EXPECT_THAT(exported({"--out", folder_ / "w.npz", "--format", "npz"}), ends(0));
    fs::remove(folder_ / "w.npz");
    EXPECT_THAT(exported({"--out", folder_ / "w.npz", "--format", "npz"}), ends(0));
    const Json facts = parse_json(content_of(folder_ / "w.npz.json"), "w.npz.json");
    EXPECT_EQ(facts.at("step").get<int>(), 1);
    EXPECT_EQ(facts.at("task").get<std::string>(), "classification");
    const Json images = facts.at("fields")[std::size_t{0}];
    EXPECT_EQ(images.at("divided_by").get<int>(), 255);
    EXPECT_EQ(images.at("mean").size(), 1u);

    const fs::path shard =
        folder_ / "first" / "ckpt" / "step-000001" / "shard-00000-of-00001.safetensors";
    overwrite(shard, fs::file_size(shard) - 2, "!");
    EXPECT_THAT(exported({"--out", folder_ / "x", "--all"}), says("E310"));
    EXPECT_FALSE(fs::exists(folder_ / "x"));
    EXPECT_FALSE(fs::exists(folder_ / ".x.partial"));
}

TEST_F(Weights, ArePrunedToFewerChannels) {
    const fs::path small = folder_ / "small.safetensors";
    const Words prune = {"prune", folder_ / "first", "--out", small};
    ASSERT_THAT(run_lockstep(prune + Words{"--keep", "0.25"}),
                ends(0,
                     "channels    256 -> 64\nparameters  203,530 -> 50,890\n",
                     "--model mlp --channels 64 --load-weights "));
    EXPECT_THAT(run_lockstep(train(folder_ / "small", "0.1") +
                             Words{"--channels", "64", "--load-weights", small.string()}),
                ends(0));
    const Words eval = {"eval", folder_ / "first", "--data", train_data(), "--weights", small};
    EXPECT_THAT(run_lockstep(eval + Words{"--channels", "64"}), ends(0));
    EXPECT_THAT(run_lockstep(eval), says("E304", Not(has("--load-skip"))));
    EXPECT_THAT(run_lockstep(eval + Words{"--channels", "64,3"}),
                says("E103: --channels is '64,3'"));
    EXPECT_THAT(run_lockstep(prune), says("E407"));
    EXPECT_THAT(run_lockstep({"prune", folder_ / "first"}), says("E105: --out is"));
    EXPECT_THAT(run_lockstep(prune + Words{"--keep", "0"}), says("E102: --keep"));
}

// As any program reads ZIP, NPY and safetensors: Python's own libraries do.
constexpr const char* reading_script = R"(
import ast, json, struct, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
raw = open(sys.argv[2], 'rb').read()
size = struct.unpack('<Q', raw[:8])[0]
header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
names = set(header) - {'__metadata__'}
assert {name[:-4] for name in archive.namelist()} == names
for name in names:
    npy = archive.read(name + '.npy')
    size = struct.unpack('<H', npy[8:10])[0]
    described = ast.literal_eval(npy[10:10 + size].decode())
    assert npy[:8] == bytes([0x93]) + b'NUMPY' + bytes([1, 0]) and (10 + size) % 64 == 0
    assert described['descr'] == '<f4' and not described['fortran_order']
    assert list(described['shape']) == header[name]['shape'] and header[name]['dtype'] == 'F32'
    begin, end = header[name]['data_offsets']
    assert npy[10 + size:] == data[begin:end] and end > begin
print('alike:', len(names))
)";

TEST_F(Weights, AreReadByOtherPrograms) {
    const fs::path npz = folder_ / "w.npz";
    ASSERT_THAT(exported({"--out", npz, "--format", "npz"}), ends(0));
    const auto loaded = [&](const std::string& run, const fs::path& file) {
        return run_lockstep(train(folder_ / run, "0") + Words{"--load-weights", file});
    };
    const ProcessResult again = loaded("of_npz", npz);
    EXPECT_EQ(printed_hash(again.output), hash_) << again.output;
    EXPECT_THAT(again, says("weights: 4 of 4 tensors of the model loaded from '"));
    const std::string map =
        R"({"weight_map": {"fc1.weight": "w.safetensors", "fc1.bias": "w.safetensors", )"
        R"("fc2.weight": "w.safetensors", "fc2.bias": "w.safetensors"}})";
    const fs::path index = folder_.file("model.safetensors.index.json", map);
    EXPECT_EQ(printed_hash(loaded("of_index", index).output), hash_);
    fs::rename(file_, folder_ / "moved");
    EXPECT_THAT(loaded("missing", index), says("4 tensor(s) are in it"));
    EXPECT_EQ(printed_hash(loaded("of_index", index).output), hash_) << "the checkpoint has them";
    fs::rename(folder_ / "moved", file_);
    if (find_program("python3").empty()) GTEST_SKIP() << "no python3";
    const fs::path script = folder_.file("read.py", reading_script);
    EXPECT_THAT(run_process({"python3", script, npz, file_}, {}, 60), ends(0, "alike: "));
}

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
                says("exported 4 tensors of step 10 to ", Not(has("--average"))));
    EXPECT_THAT(run_lockstep(
                    typed("export % --step 10 --out %", {made().whole, folder_ / "a.safetensors"})),
                says("these are the trained weights; --average writes their moving average"));
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
