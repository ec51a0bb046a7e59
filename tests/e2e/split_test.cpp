// SPDX-License-Identifier: Apache-2.0
// What a training is tested on: a share of its data, other fields of one file, data of the other
// kind.
#include "lockstep/data/order.hpp"

#include "data/foreign_files.hpp"
#include "program.hpp"

namespace lockstep::test {
namespace {

class TestedOn : public RunsTest {
  protected:
    ProcessResult train(const std::string& name, int ranks, const Words& more) const {
        return run_lockstep(
            typed("train --run % --model mlp --batch 8 --virtual-ranks 4 --np % --oversubscribe",
                  {folder_ / name, std::to_string(ranks)}) +
            more);
    }
    // Of a training that ends well: its hash of parameters and its last evaluation.
    std::string result(const std::string& name, int ranks, const Words& more) const {
        const std::string ended = output_of(train(name, ranks, more));
        const std::string evaluation = line_from(ended, "test          ");
        EXPECT_NE(evaluation, "") << ended;
        return printed_hash(ended) + evaluation;
    }
    std::string error(const Words& more) const {
        const std::string ended = output_of(train("bad", 1, more), testing::Ne(0));
        EXPECT_FALSE(fs::exists(folder_ / "bad")) << "no run is made";
        return ended;
    }
};

class Split : public TestedOn {
  protected:
    Words split(const std::string& share, const Words& more = {}) const {
        return Words{"--data", train_data(), "--split", share} + more;
    }
};

TEST_F(Split, GivesTheSameBitsAndTestsOnAnyNumberOfRanks) {
    const std::string one = result("one", 1, split("0.9", {"--data-mode", "stream"}));
    EXPECT_EQ(result("two", 2, split("0.9", {"--data-mode", "resident"})), one);
    EXPECT_EQ(result("three", 3, split("0.9")), one);
    EXPECT_NE(result("other", 2, split("0.8")), one);
}

TEST_F(Split, IsSaidAndLeavesAPartThatEvalAndPredictTake) {
    const std::string run = folder_ / "run", data = train_data();
    const auto trained = train("run", 2, split("0.9", {"--ledger", "--epochs", "2"}));
    EXPECT_THAT(trained,
                ends(0,
                     "split 0.9: 534 samples to train on, 66 to test on, by a hash of",
                     "mean and deviation of a field are those of all samples",
                     " of 66)"));
    EXPECT_THAT(run_lockstep({"data", "ledger", run}),
                ends(0, "600 samples, 66 of them in no epoch", "534"));
    const std::string last = line_from(trained.output, "test          ");
    ASSERT_NE(last, "");
    const auto eval = [&](const Words& more) {
        return run_lockstep(Words{"eval", run, "--data", data, "--oversubscribe"} + more);
    };
    EXPECT_THAT(eval({}), says("of 600)", "trained on 534 of these 600 samples: --part held-out"))
        << "eval has no split";
    for (const char* ranks : {"1", "3"}) {
        EXPECT_THAT(eval({"--part", "held-out", "--np", ranks}),
                    ends(0, "samples       66\n" + last));
    }
    EXPECT_THAT(eval({"--part", "train"}), says("of 534)"));
    EXPECT_THAT(run_lockstep({"eval", run, "--data", test_data(), "--part", "held-out"}),
                says("E106", "of the data that the run was trained on"));
    const auto predict = [&](const std::string& name, const Words& more) {
        EXPECT_THAT(
            run_lockstep(Words{"predict", run, "--data", data, "--out", folder_ / name} + more),
            ends(0));
        return read_file(folder_ / name);
    };
    // Rows of 10 f32 behind the header.
    const std::string held_out = predict("held-out.npy", {"--part", "held-out"});
    const std::string all = predict("all.npy", {});
    constexpr std::size_t row = 40;
    const std::size_t header = all.size() - 600 * row;
    std::string wanted;
    for (std::uint64_t sample = 0; sample < 600; ++sample)
        if (SamplePart::second(0.9).holds(sample)) wanted += all.substr(header + sample * row, row);
    ASSERT_GT(held_out.size(), wanted.size());
    EXPECT_EQ(held_out.substr(held_out.size() - wanted.size()), wanted);
}

TEST_F(Split, IsWhatPartsAreOf) {
    EXPECT_THAT(train("whole", 1, {"--data", train_data()}), ends(0));
    EXPECT_THAT(
        run_lockstep({"eval", folder_ / "whole", "--data", train_data(), "--part", "held-out"}),
        says("--part held-out is for runs with --split"));
}

TEST_F(Split, GoesOnOverAResumeAndCannotChange) {
    const std::string whole = result("whole", 2, split("0.75", {"--max-steps", "40"}));
    const Words steps = {"--max-steps", "17", "--checkpoint-every", "5steps"};
    EXPECT_THAT(train("cut", 3, split("0.75", steps)), ends(0));
    EXPECT_EQ(result("cut", 1, split("0.75", {"--max-steps", "40"})), whole);
    EXPECT_THAT(train("cut", 1, split("0.5", {"--max-steps", "60"})), fails("E306", "split"));
    EXPECT_THAT(train("cut", 1, {"--data", train_data(), "--max-steps", "60"}), says("E306"));
}

TEST_F(Split, OfSharesThatDoNotFitTheDataIsRefused) {
    EXPECT_THAT(error(split("0.9", {"--test-data", test_data()})),
                has("--split 0.9 does not go with --test-data"));
    EXPECT_THAT(error(split("0.9999999")), has("leaves 600 samples to train on and 0"));
    EXPECT_THAT(error(split("0.0000001")), has("leaves 0 samples to train on and 600"));
}

// Training and test samples in one file, as many publish them; names of classes are texts.
class OneFile : public TestedOn {
  protected:
    OneFile() {
        const std::vector<ForeignDataset> all{images("/x_train", 200, 1),
                                              names("/y_train", 200),
                                              images("/x_test", 40, 2),
                                              names("/y_test", 40)};
        write_foreign(both_, all);
        write_foreign(trained_, {all[0], all[1]});
        write_foreign(tested_, {all[2], all[3]});
    }
    static ForeignDataset images(const std::string& path, std::uint64_t rows, std::uint64_t seed) {
        return {.path = path, .size = {rows, 1, 8, 8}, .bytes = random_bytes(rows * 64, seed)};
    }
    // Of four bytes, padded with zeros: owl, cat, ant and, in training only, yak.
    static ForeignDataset names(const std::string& path, std::uint64_t rows) {
        static const hid_t type = [] {
            const hid_t made = H5Tcopy(H5T_C_S1);
            H5Tset_size(made, 4);
            return made;
        }();
        ForeignDataset labels{.path = path, .type = type, .size = {rows}};
        for (std::uint64_t row = 0; row < rows; ++row) {
            constexpr std::array<std::string_view, 4> all{"owl", "cat", "ant", "yak"};
            const std::string_view name = all.at(row % (rows > 100 ? 4 : 3));
            for (const char letter : name) labels.bytes.push_back(static_cast<std::byte>(letter));
            labels.bytes.push_back(std::byte{0});
        }
        return labels;
    }
    Words fields(const std::string& option, const std::string& part) const {
        return {option, "images=/x_" + part + ":CHW", option, "labels=/y_" + part};
    }
    fs::path packed(const fs::path& file, const std::string& part) const {
        const fs::path out = folder_ / ("packed-" + part);
        EXPECT_THAT(run_lockstep(Words{"data", "pack", "--hdf5", file, "--out", out} +
                                 fields("--field", part)),
                    ends(0));
        return out;
    }

    fs::path both_ = folder_ / "both.h5", trained_ = folder_ / "trained.h5",
             tested_ = folder_ / "t.h5";
};

TEST_F(OneFile, HasFieldsToTrainAndToTestOn) {
    const Words train = fields("--field", "train"), test = fields("--test-field", "test");
    const std::string apart =
        result("apart", 2, Words{"--data", trained_, "--test-data", tested_} + train + test);
    EXPECT_EQ(result("together", 2, Words{"--data", both_, "--test-data", both_} + train + test),
              apart);
    const std::string alone =
        output_of(TestedOn::train("alone", 1, Words{"--data", both_} + train + test));
    EXPECT_EQ(printed_hash(alone) + line_from(alone, "test          "), apart)
        << "--test-field alone is of --data";
    EXPECT_THAT(alone, has("classes of labels: 0 ant, 1 cat, 2 owl, 3 yak"));
    EXPECT_THAT(read_file(folder_ / "alone/confusion.csv"),
                StartsWith("class,ant,cat,owl,yak\nant,"));
}

TEST_F(OneFile, MayBePackedForTrainingOrForTesting) {
    const Words train = fields("--field", "train"), test = fields("--test-field", "test");
    const fs::path packed_train = packed(trained_, "train"), packed_test = packed(tested_, "test");
    EXPECT_EQ(
        result("foreign-test", 2, Words{"--data", packed_train, "--test-data", tested_} + test),
        result("packed", 2, {"--data", packed_train, "--test-data", packed_test}))
        << "normalised by the training data";
    EXPECT_EQ(
        result(
            "with-packed-test", 2, Words{"--data", trained_, "--test-data", packed_test} + train),
        result("foreign", 2, Words{"--data", trained_, "--test-data", tested_} + train + test));
}

TEST_F(OneFile, WhoseTestFieldsDoNotFitIsRefused) {
    const Words train = Words{"--data", both_} + fields("--field", "train");
    EXPECT_THAT(error(train + Words{"--test-field", "labels=/none"}), has("E207"));
    EXPECT_THAT(error(train + Words{"--test-field", "images=/x_test:HWC"}), has("E209"))
        << "labels are still those of training";
    write_foreign(tested_, {images("/x_test", 200, 2), names("/y_test", 200)});
    EXPECT_THAT(error(Words{"--data", tested_, "--test-data", trained_} +
                      fields("--field", "test") + fields("--test-field", "nowhere")),
                has("E207"));
    const fs::path packed_train = packed(trained_, "train");
    const std::string asks = error({"--data", packed_train, "--test-data", tested_});
    EXPECT_THAT(asks, has("--test-field images=/x_test:CHW --test-field labels=/y_test"));
    EXPECT_THAT(error({"--data", packed_train, "--field", "images=/x"}),
                has("is a packed data set"));
}

// Labels as Keras has them.
TEST_F(OneFile, WithOneHotLabelsIsToldHowToSaySo) {
    std::vector<std::int64_t> hot(200 * 3);
    for (std::size_t row = 0; row < 200; ++row) hot[row * 3 + row % 3] = 1;
    const ForeignDataset labels{
        .path = "/hot", .type = H5T_STD_I64LE, .size = {200, 3}, .bytes = encoded(hot)};
    write_foreign(both_, {images("/x", 200, 1), labels});
    const Words data{"--data", both_, "--field", "images=/x:CHW", "--field"};
    EXPECT_THAT(train("several", 1, data + Words{"labels=/hot"}),
                ends(0, "taken for 3 labels a sample", "write --field labels=/hot:onehot"));
    const Words said = data + Words{"labels=/hot:onehot", "--split", "0.8"};
    EXPECT_EQ(result("one", 1, said), result("three", 3, said));
}

TEST_F(OneFile, WithAClassThatTrainingHasNotIsRefusedByItsName) {
    EXPECT_THAT(
        error(Words{"--data", both_} + fields("--field", "test") + fields("--test-field", "train")),
        has("E217", "class 'yak' of 'labels', which 50 have"));
}

}  // namespace
}  // namespace lockstep::test
