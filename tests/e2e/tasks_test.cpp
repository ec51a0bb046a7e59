// SPDX-License-Identifier: Apache-2.0
// Every task beside classification: data that were made for it are learned, and any number of ranks
// evaluates and predicts the same. That they train to the same bits, soak/equal_bits shows.
#include "lockstep/core/random.hpp"

#include "program.hpp"
#include "simulated_gpus.hpp"

#include <cmath>
#include <limits>
#include <set>

#include <hdf5.h>

namespace lockstep::test {
namespace {

class Tasks : public RunsTest {
  protected:
    /// A training of an mlp on data below the folder; `line` as typed() has it.
    Words mlp(const std::string& data, const std::string& run, const std::string& line) const {
        return typed("train --model mlp --data % --run % " + line, {folder_ / data, folder_ / run});
    }
};

// Elements of a type such as "|u1", and of a shape such as "8, 2".
struct Array {
    std::string descr, shape, values;
};

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.
void write_npy(const fs::path& path, const Array& array) {
    std::string dict = fmt::format(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", array.descr, array.shape);
    dict.resize(117, ' ');
    write_file_atomically(
        path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + '\n' + array.values);
}

// Packs a data set of these fields.
void pack_arrays(const fs::path& folder, const std::map<std::string, Array>& fields) {
    Words pack = {"data", "pack", "--out", folder};
    for (const auto& [field, array] : fields) {
        const std::string file = fmt::format("{}-{}.npy", folder.string(), field);
        write_npy(file, array);
        pack = pack + Words{"--npy", field + "=" + file};
    }
    output_of(run_lockstep(pack));
}

template <class T>
std::string bytes_in(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Labels are which of four features are large; '\xff' is -1.
void make_labelled(const fs::path& folder, std::size_t rows, char there = '\1') {
    constexpr std::size_t columns = 4;
    CounterRandom random(Purpose::test, {rows});
    std::string features, labels;
    for (std::size_t i = 0; i < rows * columns; ++i) {
        features += static_cast<char>(random.below(256));
        labels += static_cast<unsigned char>(features.back()) > 127 ? there : '\0';
    }
    const std::string shape = fmt::format("{}, {}", rows, columns);
    pack_arrays(folder,
                {{"features", {"|u1", shape, features}}, {"labels", {"|i1", shape, labels}}});
}

// Training data and, going on where they end, test data.
void make_up(const fs::path& folder, const std::string& what, const std::string& samples) {
    const std::string synth = "data synth " + what + " --samples % --out % --first %";
    output_of(run_lockstep(typed(synth, {samples, folder / "train", "0"})));
    output_of(run_lockstep(typed(synth, {"100", folder / "test", samples})));
}

struct TaskCase {
    std::string name, shown;      ///< shown: in the log
    std::string synth, samples;   ///< of the data that are made up; "": labelled ones
    std::string options, metric;  ///< of train, and what it is measured by
    double least, most = 1e30;    ///< of that, after training
};

const std::vector<TaskCase> cases = {
    {"MultiLabel", "multi-label", "", "", "--model mlp --lr 0.01 --epochs 5", "test_f1", 0.9},
    {"Regression",
     "regression",
     "--kind regression --size 8",
     "2000",
     "--model mlp --lr 0.003 --epochs 4 --loss huber",
     "test_r2",
     0.9},
    {"Segmentation",
     "segmentation",
     "--kind segmentation --size 16 --classes 3",
     "400",
     "--model unet --width 4 --lr 0.01 --epochs 6",
     "test_iou",
     0.5},
    {"NextToken",
     "next-token",
     "--kind text --size 16 --classes 12",
     "800",
     "--model gpt --layers 1 --heads 2 --width 32 --lr 0.01 --epochs 4",
     "test_perplexity",
     1,
     6}};

class EveryTask : public Tasks, public testing::WithParamInterface<std::size_t> {
  protected:
    EveryTask() {
        const fs::path data = folder_ / "data";
        fs::create_directories(data);
        if (task().synth.empty()) {
            make_labelled(data / "train", 800);
            make_labelled(data / "test", 100);
        } else {
            make_up(data, task().synth, task().samples);
        }
    }

    static const TaskCase& task() { return cases[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Tasks,
                         EveryTask,
                         testing::Range(std::size_t{0}, cases.size()),
                         [](const auto& one) { return cases[one.param].name; });

// What the run's own evaluation said is what `eval` finds, and outputs do not depend on ranks.
void expect_same_afterwards(const fs::path& run, const fs::path& data, const std::string& test) {
    const Words eval = {"eval", run, "--data", data, "--np"};
    const ProcessResult one = run_lockstep(eval + Words{"1"});
    EXPECT_THAT(one, says(test));
    EXPECT_EQ(run_lockstep(eval + Words{"3", "--oversubscribe"}).output, one.output);
    const fs::path first = run / "1.npy", second = run / "2.npy";
    const Words predict = {"predict", run, "--data", data};
    output_of(run_lockstep(predict + Words{"--out", first}));
    output_of(run_lockstep(predict + Words{"--out", second, "--np", "2", "--oversubscribe"}));
    EXPECT_GT(fs::file_size(first), 100 * sizeof(float));
    EXPECT_EQ(content_of(first), content_of(second));
}

TEST_P(EveryTask, IsLearnedAndMeasuredAlikeOnAnyNumberOfRanks) {
    const std::string trained = output_of(run_lockstep(
        typed(
            "train --np 2 --oversubscribe --data % --test-data % --run % --batch 32 --keep-best %",
            {folder_ / "data/train", folder_ / "data/test", run_, task().metric.substr(5)}) +
        typed(task().options)));
    EXPECT_THAT(trained, has("\ntask " + task().shown + "\n"));
    EXPECT_THAT(run_lockstep({"ckpt", "ls", run_}), says("  best " + task().metric.substr(5)));
    const double found = json_lines(run_ / "metrics.jsonl").back().at(task().metric).get<double>();
    EXPECT_GE(found, task().least) << trained;
    EXPECT_LE(found, task().most) << trained;
    expect_same_afterwards(run_, folder_ / "data/test", line_from(trained, "test          "));
}

// 200 samples of four features and their sum, with some features that are no numbers.
void make_sums(const fs::path& folder, const std::vector<std::size_t>& nans, float scale = 1) {
    constexpr std::size_t rows = 200, columns = 4;
    CounterRandom random(Purpose::test, {rows});
    std::vector<float> features(rows * columns), targets(rows);
    for (std::size_t i = 0; i < features.size(); ++i) {
        features[i] = static_cast<float>(random.below(256)) / 256;
        targets[i / columns] += scale * features[i];
    }
    for (const std::size_t place : nans) features[place] = std::nanf("");
    pack_arrays(folder,
                {{"features", {"<f4", fmt::format("{}, {}", rows, columns), bytes_in(features)}},
                 {"targets", {"<f4", fmt::format("{}, 1", rows), bytes_in(targets)}}});
}

TEST_F(Tasks, NonFiniteStepsAreSkippedAlikeOnAnyNumberOfRanks) {
    make_sums(folder_ / "data", {77});
    const auto trained = [&](const std::string& run, int ranks, const Words& more) {
        return run_lockstep(mlp("data", run, "--batch 20 --virtual-ranks 4 --epochs 2 --ema 0.5") +
                            on_ranks(ranks) + more);
    };
    EXPECT_THAT(trained("stopped", 2, {}),
                ends(65, "error E701: the loss is nan at step ", "why: 'features' of sample "));
    std::set<std::string> hashes;
    for (const int ranks : {1, 3}) {
        const std::string run = fmt::format("skipped-{}", ranks);
        const std::string skipped = output_of(trained(run, ranks, {"--on-nonfinite", "skip"}));
        hashes.insert(printed_hash(skipped));
        EXPECT_THAT(skipped, has("2 step(s) skipped so far, the last is step"));
        const Json last = json_lines(folder_ / run / "metrics.jsonl").back();
        EXPECT_EQ(last.at("skipped_steps"), 2);
        EXPECT_TRUE(last.at("loss").is_number());
    }
    EXPECT_EQ(hashes.size(), 1u);
    EXPECT_EQ(hashes.begin()->size(), 32u);
}

TEST_F(Tasks, NonFiniteTestDataAreNamed) {
    make_sums(folder_ / "data", {});
    make_sums(folder_ / "test", {77});
    EXPECT_THAT(run_lockstep(mlp("data", "run", "--batch 20 --epochs 9 --virtual-ranks 2") +
                             typed("--evaluate-every 1epoch --early-stop 2 --test-data %",
                                   {folder_ / "test"}) +
                             on_ranks(2)),
                ends(0,
                     "the test loss is nan: 'features' of sample ",
                     "test/test-00000-of-00001.h5",
                     "stopped early after step 20: 2 evaluations, and none with a finite loss"));
    EXPECT_THAT(run_lockstep({"eval", run_, "--data", folder_ / "test"}),
                says("the test loss is nan: 'features' of sample "));
}

TEST_F(Tasks, NonFiniteLossesOfLargeTargetsAreExplained) {
    make_sums(folder_ / "data", {}, 1e30F);
    EXPECT_THAT(run_lockstep(mlp("data", "run", "")),
                ends(65, "why: 'targets' of sample ", "fix: begin a new run with --scale-targets"));
    output_of(run_lockstep(mlp("data", "scaled", "--scale-targets")));
    EXPECT_THAT(run_lockstep({"export", folder_ / "scaled", "--out", folder_ / "w.safetensors"}),
                says("multiply by std and add mean of 'targets' in"));
}

// The GPU withholds the update before the host knows.
TEST_F(Tasks, NonFiniteStepsAreWithheldAlikeOnAnyNumberOfGpus) {
    make_sums(folder_ / "data", {77});
    for (const char* what : {"skip", "rollback"}) {
        std::set<std::string> hashes;
        for (const int ranks : {1, 3}) {
            const std::string run = fmt::format("{}-{}", what, ranks);
            hashes.insert(printed_hash(output_of(run_under_mpirun(
                ranks,
                mlp("data", run, "--device cuda --optimizer lamb --clip-norm 1") +
                    typed("--batch 20 --virtual-ranks 4 --epochs 2 --checkpoint-every 2steps") +
                    Words{"--on-nonfinite", what},
                with_gpus()))));
            EXPECT_EQ(json_lines(folder_ / run / "metrics.jsonl").back().at("skipped_steps"), 2)
                << what;
        }
        EXPECT_EQ(hashes.size(), 1u) << what;
    }
}

TEST_F(Tasks, NonFiniteLossesOfFp16AreWarnedOfAndOverflowsEndTheRunAtLast) {
    const auto trained = [&](const std::string& data, const std::string& more) {
        return run_lockstep(
            mlp(data,
                "run" + data,
                "--batch 20 --epochs 4 --precision fp16 --on-nonfinite skip " + more));
    };
    make_sums(folder_ / "nan", {77});
    EXPECT_THAT(trained("nan", "--max-steps 10"),
                ends(0,
                     "timing micro-batches of 20 sample(s) in fp32 and",
                     ContainsRegex("warn: [0-9]+ step.s. skipped so far, the last is "
                                   "step 7: [^|]*\nstep 10 ")));
    // Losses are finite, and gradients are beyond fp16 whatever the scale.
    make_sums(folder_ / "large", {}, 1e15F);
    EXPECT_THAT(trained("large", ""),
                ends(65, "error E701: the loss scale has fallen to 3.05e-05 at step 31"));
}

/// Steps 6, 7, 12, 16, 25 and 30 have a sample that is no number; every other step is saved.
class RolledBack : public Tasks {
  protected:
    RolledBack() { make_sums(folder_ / "data", {77, 300}); }

    ProcessResult trained(const std::string& run, int ranks, const Words& more) {
        return run_lockstep(mlp("data", run, "--batch 20 --virtual-ranks 4 --epochs 3 --ema 0.5") +
                            Words{"--on-nonfinite", "rollback"} + on_ranks(ranks) + more);
    }

    const Words due_ = {"--checkpoint-every", "2steps", "--keep", "last=1"};
};

TEST_F(RolledBack, StepsLeaveTheWeightsOfTheLastDueCheckpoint) {
    const std::string one = output_of(trained("one", 1, due_));
    EXPECT_THAT(one,
                has("step 6: loss or gradient is not finite; weights are again those of step 4\n",
                    "step 7: loss or gradient is not finite; weights are still those of step 6\n"));
    EXPECT_EQ(manifest_of(folder_ / "one", 30).at("state").at("updates"), 20);

    // The step after it fails: the checkpoint before the last one must still be there.
    output_of(trained("stopped", 2, due_ + Words{"--max-steps", "15"}));
    fs::copy(folder_ / "stopped", folder_ / "damaged", fs::copy_options::recursive);
    output_of(trained("stopped", 2, due_ + Words{"--max-steps", "16"}));
    const Json there = manifest_of(folder_ / "stopped", 14);
    const Json back = manifest_of(folder_ / "stopped", 16);
    EXPECT_EQ(back.at("pieces"), there.at("pieces"));
    EXPECT_EQ(back.at("state").at("updates"), there.at("state").at("updates"));
    EXPECT_EQ(printed_hash(trained("stopped", 3, due_).output), printed_hash(one));

    flip_last_byte(folder_ / "damaged/ckpt/step-000014/shard-00000-of-00002.safetensors");
    EXPECT_THAT(trained("damaged", 1, due_),
                ends(65, "error E701: step 16 is not finite", "step 14 is gone or damaged"));
}

TEST_F(RolledBack, StepsNeedACheckpointThatWasDue) {
    EXPECT_THAT(trained("none", 1, {"--checkpoint-every", "3epochs"}),
                ends(65, "no checkpoint was due before it"));
    EXPECT_THAT(trained("none", 1, {"--checkpoint-every", "3steps"}), says("error E306"));
}

TEST_F(Tasks, NonFiniteStepsEndTheRunWhereAllAreSkipped) {
    make_up(folder_ / "data", "--kind regression --size 4", "200");
    EXPECT_THAT(
        run_lockstep(
            mlp("data/train", "run", "--optimizer sgd --lr 1e6 --epochs 500 --on-nonfinite skip")),
        ends(65, "error E701: 100 steps in a row were skipped"));
}

// What numpy makes of whole numbers, and other types that the same numbers have elsewhere.
class StoredTypes : public RunsTest {
  protected:
    ProcessResult trained(const fs::path& data, const fs::path& test, const std::string& model) {
        return run_lockstep(
            typed("train --data % --test-data % --run % --batch 4 --max-steps 1 --model " + model,
                  {data, test, data.string() + "-run"}));
    }
};

TEST_F(StoredTypes, OfTargetsAreAnyNumbers) {
    const std::vector<std::int64_t> wide{-5, 2'000'000, 3, 0, 7, -1, 12, 4};
    const std::vector<std::int32_t> pairs{-5, 9, 3, 0, 7, -1, 12, 4, 1, 1, 2, 2, 3, 3, 4, 4};
    for (const Array& targets : {Array{"<i8", "8,", bytes_in(wide)},
                                 Array{"<i4", "8, 2", bytes_in(pairs)},
                                 Array{"|u1", "8,", "12345678"}}) {
        const fs::path data = folder_ / targets.descr.substr(1);
        pack_arrays(data, {{"features", {"|u1", "8, 1", "abcdefgh"}}, {"targets", targets}});
        EXPECT_THAT(trained(data, data, "mlp"), ends(0, "RMSE")) << targets.descr;
    }
}

TEST_F(StoredTypes, OfTokensMayDifferInTestData) {
    const std::vector<std::int32_t> numbers{0, 1, 2, 3, 1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2};
    const std::vector<std::uint8_t> bytes(numbers.begin(), numbers.end());
    const fs::path data = folder_ / "data", test = folder_ / "test";
    pack_arrays(data, {{"tokens", {"<i4", "4, 4", bytes_in(numbers)}}});
    pack_arrays(test, {{"tokens", {"|u1", "4, 4", bytes_in(bytes)}}});
    EXPECT_THAT(trained(data, test, "gpt --layers 1 --heads 1 --width 8"), ends(0, "perplexity"));
}

class Infer : public Tasks {
  protected:
    Infer() {
        make_up(folder_ / "data", "--kind regression --size 4", "200");
        output_of(run_lockstep(mlp("data/train", "run", "--batch 32 --max-steps 2")));
    }

    std::string said(const std::string& command, const Words& words) {
        return output_of(run_lockstep(Words{command, run_} + words), testing::Ne(0));
    }
};

TEST_F(Infer, RefusesWhatDoesNotFitTheRun) {
    const fs::path test = folder_ / "data/test", file = folder_.file("there.npy", "x");
    EXPECT_THAT(said("eval", {}), has("E105: --data is missing"));
    EXPECT_THAT(said("predict", {"--data", test}), has("E105: --out is missing"));
    EXPECT_THAT(said("sample", {"--prompt", "a"}), has("E106: '"));
    EXPECT_THAT(said("predict", {"--data", test, "--out", file}), has("E407: '"));
    EXPECT_EQ(content_of(file), "x");
    EXPECT_THAT(said("predict", {"--data", test, "--out", folder_ / "x.txt"}),
                has("why: its ending says what it is: .csv, .npy for NPY, .h5 or .hdf5 "));
    EXPECT_FALSE(fs::exists(folder_ / "x.txt"));
    EXPECT_THAT(said("predict", {"--data", test, "--out", folder_ / "x.csv", "--as", "classes"}),
                has("E106: --as probabilities and classes are for runs with classes"));
    output_of(run_lockstep(
        typed("data synth --kind regression --size 5 --samples 50 --out %", {folder_ / "wide"})));
    EXPECT_THAT(said("eval", {"--data", folder_ / "wide"}), has("they are 5x1x1"));
    const fs::path alone = folder_ / "alone";
    pack_arrays(alone, {{"features", {"<f4", "8, 4", std::string(8 * 4 * sizeof(float), '\0')}}});
    EXPECT_THAT(said("eval", {"--data", alone}),
                has("has no 'targets' to compare outputs with", "lockstep predict RUN --data "));
    EXPECT_THAT(said("eval", {"--data", test, "--train-data", test}),
                has("is not what the run was trained on"));
    EXPECT_THAT(said("eval", {"--data", test, "--weights", file}), has("E309"));
    fs::remove_all(run_ / "ckpt");
    EXPECT_THAT(said("eval", {"--data", test}), has("E301: no checkpoint in"));
}

// The one data set in the file, as the HDF5 library reads it.
std::string predictions_in(const fs::path& path) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, "predictions", H5P_DEFAULT);
    std::vector<float> values(H5Dget_storage_size(dataset) / sizeof(float));
    EXPECT_GE(H5Dread(dataset, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    H5Dclose(dataset);
    H5Fclose(file);
    return bytes_in(values);
}

TEST_F(Infer, WritesTheSameValuesInEitherFormatOnAnyNumberOfRanks) {
    const auto predicted = [&](const std::string& name, const Words& more) {
        const fs::path file = folder_ / name;
        EXPECT_THAT(
            run_lockstep(typed("predict % --data % --out %", {run_, folder_ / "data/test", file}) +
                         more),
            ends(0, name + ": f32 [100, 1], step "));
        return file;
    };
    folder_.file(".1.h5.partial", "left by another");
    const fs::path one = predicted("1.h5", {});
    const fs::path two = predicted("2.hdf5", {"--np", "2", "--oversubscribe"});
    EXPECT_EQ(content_of(one), content_of(two));
    EXPECT_EQ(predictions_in(one).size(), 100 * sizeof(float));
    EXPECT_THAT(content_of(predicted("1.npy", {})), EndsWith(predictions_in(one)));
    EXPECT_FALSE(fs::exists(folder_ / ".1.h5.partial"));
}

TEST_F(Infer, NamesTheUsersFileOfAnotherTypeOrWidth) {
    const fs::path file = folder_ / "x.npy";
    write_npy(file, {"|u1", "5, 4", std::string(20, '\1')});
    EXPECT_THAT(run_lockstep(typed("predict % % --out %", {run_, file, folder_ / "x.csv"})),
                says(fmt::format("E217: '{}' does not fit the training data\n  why: it has u8, the "
                                 "training data f32\n  fix: write its values in the same range and "
                                 "type: x.astype('float32')",
                                 file.string())));
    write_npy(folder_ / "3.npy", {"<f4", "5, 3", bytes_in(std::vector<float>(15, 0.5F))});
    EXPECT_THAT(
        run_lockstep(typed("predict % % --out %", {run_, folder_ / "3.npy", folder_ / "x.csv"})),
        says(fmt::format(
            "E217: '{}' does not fit the training data\n  why: its rows have 3 numbers, "
            "those of the training data 4",
            (folder_ / "3.npy").string())));
}

TEST_F(Infer, NamesSamplesWhoseOutputsAreNaN) {
    std::vector<float> rows(20, 0.5F);
    const auto said = [&](const std::string& name, const Words& more) {
        write_npy(folder_ / "x.npy", {"<f4", "5, 4", bytes_in(rows)});
        return output_of(run_lockstep(
            typed("predict % % --out %", {run_, folder_ / "x.npy", folder_ / name}) + more));
    };
    EXPECT_THAT(said("sound.csv", {}), Not(has("outputs are NaN for ")));
    rows[9] = rows[14] = std::numeric_limits<float>::quiet_NaN();
    for (const char* ranks : {"1", "2"})
        EXPECT_THAT(said(fmt::format("{}.csv", ranks), {"--np", ranks, "--oversubscribe"}),
                    has("outputs are NaN for 2 of 5 samples, the first of them "
                        "sample 2: what '"))
            << ranks;
}

// The same pixels with channels first and last; files of others name their fields by --field.
TEST_F(Tasks, OfImagesAreTakenWithChannelsWhereTheyAre) {
    constexpr std::size_t side = 8, channels = 3, samples = 2;
    output_of(run_lockstep(
        typed("data synth --kind cifar --size 8 --samples 64 --out %", {folder_ / "data"})));
    output_of(run_lockstep(mlp("data", "run", "--batch 32 --max-steps 2")));
    std::string first, last(samples * channels * side * side, '\0');
    for (std::size_t i = 0; i < last.size(); ++i) {
        const std::size_t pixel = i % (side * side), plane = i / (side * side);
        first += static_cast<char>(i * 7);
        last[((plane / channels) * side * side + pixel) * channels + plane % channels] =
            first.back();
    }
    write_npy(folder_ / "first.npy", {"|u1", "2, 3, 8, 8", first});
    write_npy(folder_ / "last.npy", {"|u1", "2, 8, 8, 3", last});
    for (const std::string name : {"first", "last"})
        output_of(
            run_lockstep(typed("predict % % --out %",
                               {run_, folder_ / (name + ".npy"), folder_ / (name + ".out.npy")})));
    EXPECT_EQ(content_of(folder_ / "first.out.npy"), content_of(folder_ / "last.out.npy"));
    write_npy(folder_ / "other.npy", {"|u1", "2, 4, 4, 3", first.substr(0, 96)});
    EXPECT_THAT(run_lockstep(typed("predict % % --out %",
                                   {run_, folder_ / "other.npy", folder_ / "other.csv"})),
                ends(65, "they are 4x4x3, the training data 3x8x8"));
}

TEST_F(Tasks, SampleGoesOnWithATextWhereverTheRunLies) {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "abcd";
    folder_.file("t.txt", text);
    output_of(run_lockstep(typed("data pack --text % --length 16 --classes 256 --out %",
                                 {folder_ / "t.txt", folder_ / "data"})));
    output_of(run_lockstep(
        typed("train --np 1 --data % --run % --model gpt --layers 1 --heads 2 --width 32 --lr 0.01 "
              "--batch 32 --max-steps 60",
              {folder_ / "data", run_})));
    fs::remove_all(folder_ / "data");
    fs::rename(run_, folder_ / "moved");
    const auto said = [&](const std::string& options, const std::string& prompt) {
        return run_lockstep(
                   typed("sample % --tokens 11 --prompt % " + options, {folder_ / "moved", prompt}))
            .output;
    };
    EXPECT_EQ(said("--temperature 0", "abcd"), "abcdabcdabcdabc\n");
    EXPECT_EQ(said("--top 1 --seed 5", "abcd"), "abcdabcdabcdabc\n");
    const std::string hot = said("--temperature 100", "abcd");
    EXPECT_EQ(said("--temperature 100", "abcd"), hot);
    EXPECT_NE(said("--temperature 100 --seed 2", "abcd"), hot);
    EXPECT_THAT(said("", ""), has("E105: --prompt is missing"));
}

TEST_F(Tasks, RefuseNumbersThatAreNoLabelsUnlessTheyAreUnknown) {
    const auto trained = [&](const std::string& name, char there) {
        make_labelled(folder_ / name, 100, there);
        return run_lockstep(mlp(name, name + "-run", "--batch 32 --max-steps 3") +
                            Words{"--test-data", folder_ / name});
    };
    EXPECT_THAT(trained("sevens", '\7'),
                ends(65,
                     ContainsRegex("E210: label [0-9]+ of sample [0-9]+ is 7: row "),
                     "fix: if it is unknown, store -1; to predict"));
    EXPECT_THAT(trained("unknown", '\xff'), ends(0, " % unknown, left out)"));
}

}  // namespace
}  // namespace lockstep::test
