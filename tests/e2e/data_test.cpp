// SPDX-License-Identifier: Apache-2.0
// Training reads its data one way or another: the model is the same, and every sample counts once.
#include "data/foreign_files.hpp"
#include "program.hpp"

#include <csignal>
#include <functional>

namespace lockstep::test {
namespace {

constexpr std::int64_t steps_of_epoch = 75;  // 600 samples, 8 in a step

Words train(const fs::path& data, const fs::path& run, int ranks) {
    return train_words(data, run, "mlp", 8) +
           Words{"--virtual-ranks", "4", "--epochs", "1", "--log-every", "1"} + on_ranks(ranks);
}

// What a training without other words ends with; computed once.
const std::string& usual_hash() {
    static const std::string hash = [] {
        const TempDir folder;
        return printed_hash(output_of(run_lockstep(train(train_data(), folder / "run", 2))));
    }();
    return hash;
}

class TrainData : public RunsTest {
  protected:
    ProcessResult run(const std::string& name, int ranks, const Words& more = {}) const {
        return run_lockstep(train(data_, folder_ / name, ranks) + more);
    }
    /// The parameters that a run ends with; "" if it fails.
    std::string hash(const std::string& name, int ranks, const Words& more = {}) const {
        return printed_hash(output_of(run(name, ranks, more)));
    }

    fs::path data_ = train_data();
};

TEST_F(TrainData, IsTheSameStreamedAndResident) {
    const std::string streamed = hash("streamed", 2, {"--data-mode", "stream"});
    EXPECT_EQ(hash("resident", 3, {"--data-mode", "resident"}), streamed);
    EXPECT_EQ(
        hash("dropped", 1, {"--data-mode", "stream", "--page-cache", "drop", "--io-threads", "3"}),
        streamed);
}

TEST_F(TrainData, InUniformOrderIsTheSameOnAnyNumberOfRanks) {
    const std::string one = hash("one", 1, {"--order", "uniform"});
    EXPECT_EQ(hash("four", 4, {"--order", "uniform"}), one);
    EXPECT_NE(usual_hash(), one);
}

TEST_F(TrainData, AndRunMayHaveNamesThatAreNotUtf8) {
    data_ = folder_ / "caf\xe9/train";
    fs::create_directory(data_.parent_path());
    copy_train_set(data_);
    hash("r\xff", 2, {"--max-steps", "1"});
    EXPECT_THAT(run("r\xff", 1, {"--max-steps", "2"}), says("step 2 "));
    EXPECT_THAT(run_lockstep({"status", folder_ / "r\xff"}), ends(0));
}

// Two files as others write them: images without channels, labels of 32 bits.
class ForeignTrainData : public TrainData {
  protected:
    ForeignTrainData() {
        data_ = folder_ / "foreign";
        fs::create_directory(data_);
        for (const std::uint64_t number : {1, 2})
            write_foreign(data_ / fmt::format("part-{}.h5", number),
                          {images(200, number), labels(200)});
    }

    static ForeignDataset images(std::uint64_t rows, std::uint64_t seed) {
        return {.size = {rows, 8, 8},
                .chunk = {16, 8, 8},
                .bytes = random_bytes(rows * 64, seed),
                .filters = {{H5Z_FILTER_DEFLATE, {4}}}};
    }
    static ForeignDataset contiguous(const std::vector<hsize_t>& size,
                                     const std::vector<std::byte>& bytes,
                                     hid_t type = H5T_STD_U8LE) {
        return {.type = type, .size = size, .bytes = bytes};
    }
    static ForeignDataset labels(std::uint64_t rows) {
        std::vector<std::int32_t> values(rows);
        for (std::uint64_t row = 0; row < rows; ++row)
            values[row] = static_cast<std::int32_t>(row % 10);
        return {.path = "/y", .type = H5T_STD_I32LE, .size = {rows}, .bytes = encoded(values)};
    }

    const Words fields_ = {"--field", "images=/x/data", "--field", "labels=/y"};
};

TEST_F(ForeignTrainData, IsTheSameOnAnyNumberOfRanks) {
    const std::string one = hash("one", 1, fields_ + Words{"--data-mode", "stream"});
    EXPECT_EQ(hash("shared", 4, fields_ + Words{"--data-mode", "resident"}), one);
    EXPECT_EQ(hash("three", 3, fields_ + Words{"--data-mode", "stream"}), one);
}

TEST_F(ForeignTrainData, IsTrainedOnByTheLineThatInspectShows) {
    const std::string look = output_of(run_lockstep({"data", "inspect", data_}));
    const std::string line = line_from(look, "lockstep train --data ");
    EXPECT_THAT(in_shell(folder_.path(), line + " --model mlp --max-steps 1 --np 1"), ends(0))
        << look;
    EXPECT_TRUE(fs::exists(folder_ / "runs/foreign/run.json"));
}

// The same pixels, channels first in one file and last in the other, give the same model.
TEST_F(ForeignTrainData, MayHaveItsChannelsLast) {
    constexpr std::size_t rows = 120, channels = 3, pixels = 6 * 5, values = channels * pixels;
    const std::vector<std::byte> first = random_bytes(rows * values, 3);
    std::vector<std::byte> last(first.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
        const std::size_t image = i / values, channel = i % values / pixels, pixel = i % pixels;
        last[image * values + pixel * channels + channel] = first[i];
    }
    write_foreign(folder_ / "CHW.h5", {contiguous({rows, channels, 6, 5}, first), labels(rows)});
    write_foreign(folder_ / "HWC.h5", {contiguous({rows, 6, 5, channels}, last), labels(rows)});
    const auto hash_of = [&](const std::string& layout, int ranks) {
        data_ = folder_ / (layout + ".h5");
        return hash(layout + "-run",
                    ranks,
                    {"--field", "images=/x/data:" + layout, "--field", "labels=/y"});
    };
    const std::string wanted = hash_of("CHW", 1);
    EXPECT_EQ(hash_of("HWC", 2), wanted);
    const ProcessResult small = run("small", 1, {"--field", "images=/x/data:nhwc,labels=/y"});
    EXPECT_EQ(printed_hash(small.output), wanted);
    EXPECT_THAT(small, says("images: u8, C 3, H 6, W 5 (stored H, W, C)"));
    EXPECT_THAT(run("unsaid", 1, {"--field", "images=/x/data,labels=/y"}),
                ends(64, "images=/x/data:HWC, or"));
}

TEST_F(ForeignTrainData, MayBeFloats) {
    constexpr std::size_t rows = 200, values = 2 * 4 * 4;
    std::vector<float> pixels(rows * values);
    CounterRandom random(Purpose::test, {11});
    for (float& pixel : pixels) pixel = static_cast<float>(random.below(1000)) / 500 - 1;
    data_ = folder_ / "floats.h5";
    write_foreign(data_,
                  {contiguous({rows, 2, 4, 4}, encoded(pixels), H5T_IEEE_F32LE), labels(rows)});
    const Words fields = {"--field", "images=/x/data:CHW", "--field", "labels=/y"};
    const std::string one = hash("one", 1, fields + Words{"--data-mode", "stream"});
    EXPECT_EQ(hash("three", 3, fields + Words{"--data-mode", "resident"}), one);
    const Words moved = fields + Words{"--transform", "flip, crop 4 pad 1"};
    const std::string flipped = hash("flipped", 1, moved);
    EXPECT_NE(flipped, one);
    EXPECT_EQ(hash("flipped by two", 2, moved), flipped);
    EXPECT_THAT(run("idle", 1, fields + Words{"--transform", "normalise"}),
                ends(64, "E248: 'normalise' would do nothing to 'images'"));
}

// What is odd about data is said before the first step.
TEST_F(ForeignTrainData, IsNotTrainedOnWithoutAWordAboutItsNumbersAndClasses) {
    constexpr std::size_t rows = 40;
    std::vector<std::byte> classes(rows);
    for (std::size_t row = 0; row < rows; ++row) classes[row] = std::byte(row % 4 + 1);
    ForeignDataset odd = contiguous({rows}, classes);
    odd.path = "/y";
    data_ = folder_ / "odd.h5";
    write_foreign(data_, {contiguous({rows, 8, 8}, random_bytes(rows * 64, 1)), odd});
    const std::string result =
        output_of(run("run", 1, {"--field", "images=/x/data,labels=/y", "--max-steps", "1"}));
    for (const char* wanted : {"warn: labels: 1 of 5 classes does not occur: 0. If they are",
                               "input images: u8, H 8, W 8, divided by 255, not normalised: a file "
                               "of others has no mean and deviation"}) {
        const std::size_t place = result.find(wanted);
        ASSERT_NE(place, result.npos) << wanted << "\n" << result;
        EXPECT_LT(place, result.find("step 1 "));
    }
}

// Contiguous files, which nothing but their looks protects.
class ChangingTrainData : public ForeignTrainData {
  protected:
    ChangingTrainData() {
        data_ = folder_ / "plain";
        fs::create_directory(data_);
        for (const std::uint64_t number : {1, 2}) write(number, number);
    }

    fs::path part(std::uint64_t number) const { return data_ / fmt::format("part-{}.h5", number); }
    /// In place, so that files that are open have other bytes, too.
    void write(std::uint64_t number, std::uint64_t seed) const {
        const fs::path whole = folder_ / "whole.h5";
        write_foreign(whole, {contiguous({200, 8, 8}, random_bytes(200 * 64, seed)), labels(200)});
        if (fs::exists(part(number)))
            overwrite(part(number), 0, content_of(whole));
        else
            fs::copy_file(whole, part(number));
    }
};

TEST_F(ChangingTrainData, EndsTheRunAndKeepsTheCheckpointBefore) {
    for (const char* mode : {"stream", "resident"}) {
        const fs::path run = folder_ / mode;
        const Words more = {
            "--data-mode", mode, "--max-steps", "1000000", "--checkpoint-every", "20steps"};
        const auto job = started(train(data_, run, 2) + fields_ + more);
        const auto has_saved = [&] { return fs::exists(run / "latest") && newest_step(run) > 60; };
        EXPECT_TRUE(job->until(has_saved));
        write(2, 7);
        EXPECT_EQ(job->wait(), 65) << output();
        EXPECT_THAT(output(), has("error E251: '" + part(2).string() + "' changed"));
        EXPECT_THAT(state_of(run), StartsWith("failed, step "));
        EXPECT_THAT(run_lockstep({"ckpt", "verify", run}), ends(0));
        EXPECT_FALSE(fs::exists(checkpoint_of(run, state_step(run))));
        write(2, 2);
    }
}

TEST_F(ChangingTrainData, WithOtherTimesGoesOnIfAllSamplesAreTheSame) {
    const std::string wanted = hash("undisturbed", 1, fields_ + Words{"--max-steps", "40"});
    const auto end_at = [&](const char* steps, const Words& more = {}) {
        return run("run", 2, fields_ + Words{"--max-steps", steps} + more);
    };
    EXPECT_THAT(end_at("20"), ends(0));
    write(2, 2);  // now
    EXPECT_THAT(end_at("40"), ends(78, "all samples were compared and are the same"));
    const std::string accepted = output_of(end_at("40", {"--accept-data"}));
    EXPECT_EQ(printed_hash(accepted), wanted);
    EXPECT_THAT(accepted, has("have other names or times"));
    const Words evaluated = Words{"eval", run_, "--data", data_} + fields_;
    EXPECT_THAT(run_lockstep(evaluated), ends(0));
    write(2, 3);
    EXPECT_THAT(end_at("45", {"--accept-data"}), ends(78, "the hash of their content is another"));
    EXPECT_THAT(run_lockstep(evaluated), ends(0)) << "other data, for which the run holds all";
}

TEST_F(ChangingTrainData, IsNamedWhereTheRunIsTestedOnIt) {
    fs::rename(part(2), folder_ / "test.h5");
    const Words more = {"--test-data", folder_ / "test.h5", "--max-steps", "1000000"};
    const auto job = started(train(data_, run_, 2) + fields_ + more);
    EXPECT_TRUE(job->trains(run_, 60));
    overwrite(folder_ / "test.h5", 0, content_of(folder_ / "whole.h5"));
    EXPECT_EQ(job->wait(), 65) << output();
    EXPECT_THAT(output(), has("test.h5' changed while"));
}

TEST_F(ForeignTrainData, RefusesTestDataInOtherUnits) {
    const std::vector<std::byte> pixels = random_bytes(40 * 16, 5);
    std::vector<float> floats;
    for (const std::byte pixel : pixels) floats.push_back(std::to_integer<std::uint8_t>(pixel));
    data_ = folder_ / "bytes.h5";
    write_foreign(data_, {contiguous({40, 4, 4}, pixels), labels(40)});
    write_foreign(folder_ / "floats.h5",
                  {contiguous({40, 4, 4}, encoded(floats), H5T_IEEE_F32LE), labels(40)});
    EXPECT_THAT(run("run", 1, fields_ + Words{"--test-data", folder_ / "floats.h5"}),
                fails("they are f32, the training data u8"));
}

// Columns of very different size, of which the difference of two decides the class. The test set is
// of one class: normalised by statistics of its own it could not be told.
class TableTrainData : public TrainData {
  protected:
    TableTrainData() {
        pack("train", 600, [](std::uint64_t row) { return row % 2; });
        pack("test", 100, [](std::uint64_t) { return 1U; });
        data_ = folder_ / "train";
    }

    void pack(const std::string& name,
              std::uint64_t rows,
              const std::function<std::uint64_t(std::uint64_t)>& class_of) {
        CounterRandom random(Purpose::test, {rows});
        std::string text = "pressure,drift,kind\n";
        for (std::uint64_t row = 0; row < rows; ++row) {
            const std::uint64_t kind = class_of(row), noise = random.below(100);
            text += fmt::format("{},{},{}\n",
                                101'000 + 100 * kind + noise / 2,
                                1e-5 * static_cast<double>(noise),
                                kind == 0 ? "calm" : "storm");
        }
        if (name == "test") text += "101000,0,calm\n";  // classes are numbered as their names sort
        write_file_atomically(folder_ / (name + ".csv"), text);
        EXPECT_THAT(run_lockstep(typed("data pack --csv % --label kind --out %",
                                       {folder_ / (name + ".csv"), folder_ / name})),
                    ends(0));
    }
};

TEST_F(TableTrainData, LearnsFromFeaturesOnAnyNumberOfRanks) {
    const Words test = {"--test-data", folder_ / "test", "--lr", "0.01"};
    EXPECT_EQ(hash("four", 4, test), printed_hash(output_of(run("one", 1, test))));
    EXPECT_GT(last_accuracy(folder_ / "one"), 0.95);
}

TEST_F(TableTrainData, KnowsTestDataWithFewerClassesByTheirNames) {
    pack("half", 100, [](std::uint64_t) { return 1U; });  // "storm" is its class 0
    EXPECT_THAT(run("run", 2, {"--test-data", folder_ / "half", "--lr", "0.01"}),
                ends(0, "classes of labels: 0 "));
    EXPECT_GT(last_accuracy(run_), 0.95);
}

TEST_F(TableTrainData, IsKnownByTheNamesOfItsColumns) {
    EXPECT_THAT(run("run", 1, {"--max-steps", "1"}), ends(0));
    EXPECT_THAT(run_lockstep({"data", "inspect", data_}), says("\npressure of features: mean 101"));
    write_file_atomically(folder_ / "moved.csv", "drift,pressure,kind\n0,101000,calm\n");
    ASSERT_THAT(run_lockstep(typed("data pack --csv % --label kind --out %",
                                   {folder_ / "moved.csv", folder_ / "moved"})),
                ends(0));
    const Words moved = {run_, "--data", folder_ / "moved"};
    for (const Words& use :
         {Words{"eval"} + moved,
          Words{"predict"} + moved + Words{"--out", folder_ / "out.npy"},
          train(data_, folder_ / "other", 1) + Words{"--test-data", folder_ / "moved"}}) {
        EXPECT_THAT(run_lockstep(use), ends(65, "column 1 of 'features' is 'drift'"));
    }
}

class DamagedTrainData : public TrainData {
  protected:
    DamagedTrainData() {
        data_ = folder_ / "damaged";
        copy_train_set(data_);
        const auto index = open_index(data_);
        overwrite(shard_of(data_), index->stored_blocks(0)[3].offset + 100, "damage");
    }
};

TEST_F(DamagedTrainData, MaskedTrainsInStepOnAnyNumberOfRanks) {
    const Words masked = {"--on-bad-data", "mask"};
    const std::string one = hash("one", 1, masked + Words{"--data-mode", "stream"});
    EXPECT_EQ(hash("four", 4, masked + Words{"--data-mode", "stream"}), one);
    EXPECT_EQ(hash("shared", 2, masked + Words{"--data-mode", "resident"}), one);
    EXPECT_EQ(training_steps(folder_ / "four"), all_steps(steps_of_epoch));
}

class KilledTrainData : public TrainData {
  protected:
    /// Runs on `ranks` ranks until `step`, and kills them all.
    void kill_at(std::int64_t step, int ranks, const Words& more) const {
        const auto job = started(train(data_, run_, ranks) + more);
        job->trains(run_, step - 1);
        job->send(SIGKILL);
        job->wait();
        expect_nothing_left();
    }
};

TEST_F(KilledTrainData, IsSeenExactlyOnceAcrossRestarts) {
    const Words options = {"--ledger", "--checkpoint-every", "5steps"};
    kill_at(17, 3, options);
    kill_at(33, 2, options);
    kill_at(49, 4, options);
    EXPECT_EQ(hash("run", 3, options), usual_hash());
    EXPECT_EQ(training_steps(run_), all_steps(steps_of_epoch));
    EXPECT_THAT(run_lockstep({"data", "ledger", run_}), ends(0, "exactly once"));
}

TEST_F(TrainData, TransformedIsTheSameOnAnyNumberOfRanks) {
    const Words transform = {"--transform",
                             "crop 28 pad 3, flip, rotate 10, cutout 6, mixup 0.3, normalise"};
    const std::string one = hash("one", 1, transform);
    EXPECT_EQ(hash("four", 4, transform), one);
    EXPECT_EQ(hash("parts", 2, transform + Words{"--io-threads", "2", "--data-mode", "stream"}),
              one);
    EXPECT_NE(usual_hash(), one);
}

// One of each kind of file or folder that people have.
class LookLine : public RunsTest {
  protected:
    void SetUp() override {
        python(R"(
def h5(name, **data):
    with h5py.File(name + '.h5', 'w') as f:
        for key, value in data.items(): f[key] = value
i4, f4 = r.integers(0, 4, 40), r.normal(size=(40, 8)).astype('f4')
pixels = r.integers(0, 256, (40, 16, 16, 3)).astype('u1')
h5('images', x=pixels, y=i4)
h5('matlab', X=r.normal(size=(40, 9, 9)), Y=i4.reshape(40, 1).astype('f8'))
h5('flat', data=f4, label=i4)
h5('texts', data=f4, label=n.array(['a', 'b'] * 20, 'S1'))
h5('regression', features=f4, targets=f4[:, 0])
h5('several', features=f4, targets=f4[:, :3])
h5('flags', images=pixels, labels=r.integers(0, 2, (40, 5)))
h5('onehot', data=f4, label=n.eye(4, dtype='f4')[i4])
h5('masks', images=pixels, masks=r.integers(0, 3, (40, 16, 16)))
h5('tokens', tokens=r.integers(0, 50, (40, 17)).astype('i4'))
h5('volumes', x=n.zeros((40, 1, 4, 4, 4), 'f4'), y=i4)
h5('labels', y=i4)
h5('far', x=pixels[..., 0] * 200.0, y=i4)
h5('colon', x=pixels, **{'a:y': i4})
h5('alone', x=pixels)
n.save('nodes.npy', f4.reshape(40, 4, 2)); n.save('edges.npy', n.zeros((40, 4, 4), 'f4'))
n.save('x.npy', f4); n.save('y.npy', i4); n.save('z.npy', f4[:, 0])
n.save('l.npy', r.integers(0, 2, (40, 5)))
n.save('s.npy', f4.reshape(40, 2, 4))
open('t.csv', 'w').write('a,b,kind\n' + ''.join(f'{i},{i * i},{"uv"[i % 2]}\n' for i in range(40)))
open('book.txt', 'w').write('all work and no play ' * 40)
)");
        ASSERT_THAT(shell(R"(p='lockstep data pack'
$p --csv t.csv --label kind --out csv &&
$p --npy features=x.npy --npy labels=y.npy --npy targets=z.npy --out both &&
$p --npy nodes=nodes.npy --npy edges=edges.npy --npy labels=y.npy --out graph &&
$p --npy features=x.npy --npy labels=l.npy --out many &&
$p --npy features=s.npy --npy targets=z.npy --out series &&
$p --text book.txt --length 16 --out text)"),
                    ends(0));
    }
};

TEST_F(LookLine, TrainsOnEachKindOfData) {
    // Words of the line that trains on it, or of why there is none.
    for (const auto& [place, words] : std::map<std::string, std::string>{
             {"images.h5", "--field images=/x:HWC --field labels=/y --batch 32 --run"},
             {"matlab.h5", "--field images=/X --field labels=/Y:label --batch 32 --run"},
             {"far.h5", "--field labels=/y --normalise dataset --batch 32 --run"},
             {"colon.h5", "--field labels=/a:y:label --batch 32 --run"},
             {"flat.h5", "--field features=/data --field labels=/label --model mlp"},
             {"texts.h5", "--field features=/data --field labels=/label --model mlp"},
             {"regression.h5", "--field features=/features --field targets=/targets"},
             {"several.h5", "--field targets=/targets --model mlp"},
             {"flags.h5", "--field images=/images:HWC --field labels=/labels --batch 32 --run"},
             {"onehot.h5", "--field labels=/label:onehot --model mlp"},
             {"masks.h5", "--field masks=/masks --model unet"},
             {"tokens.h5", "--field tokens=/tokens --model gpt"},
             {"volumes.h5", "no command to train on it: "},
             {"labels.h5", "no command to train on it: "},
             {"alone.h5", "no command to train on it: no labels"},
             {"csv", "--data csv --model mlp --batch 32 --run runs/csv"},
             {"csv/.", "--data csv/. --model mlp --batch 32 --run runs/first"},
             {"both", "--data both --task classification --model mlp"},
             {"graph", "--data graph --inputs edges --model mlp"},
             {"many", "--data many --model mlp"},
             {"series", "--data series --model mlp"},
             {"text", "--data text --model gpt"}}) {
        const std::string looked = output_of(shell("lockstep data inspect " + place));
        EXPECT_THAT(looked, has(words));
        const std::string line = line_from(looked, "lockstep train --data ");
        if (line.empty()) continue;
        EXPECT_THAT(shell(line + " --max-steps 2"), ends(0)) << line << '\n';
    }
}

}  // namespace
}  // namespace lockstep::test
