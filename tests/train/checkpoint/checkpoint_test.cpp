// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/checkpoint.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "checkpoint/initial_weights.hpp"
#include "support/unit.hpp"
#include "train/checkpoint/shares.hpp"

#include <cmath>
#include <fstream>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

const std::vector<TensorMeta> tensors = {{"fc.weight", {20, 50}}, {"fc.bias", {7}}, {"scale", {}}};

using test::Share;

Share share_of(int rank, int ranks, float base) {
    return {tensors, rank, ranks, base, 1000};
}

class Checkpoints : public test::SharedFolder {
  protected:
    Share mine(float base = -1) const { return share_of(ranks_.rank(), ranks_.size(), base); }

    void save(std::int64_t step, int keep = 3, std::int64_t best_step = 0) {
        Share share = mine(static_cast<float>(step));
        save({.step = step, .retention = {.last = keep, .best = {best_step}}}, share);
    }

    void save(const CheckpointState& state, const Share& share) {
        CheckpointSave(ranks_, {root, 1, {}}, {state, tensors, share.pieces}).finish();
    }

    std::int64_t load_step(Share& into, std::optional<std::int64_t> step = {}) {
        const auto state = load_checkpoint(ranks_, root, tensors, into.pieces, step);
        return state ? state->step : -1;
    }

    std::vector<std::int64_t> steps_there() const {
        std::vector<std::int64_t> steps;
        for (const CheckpointInfo& info : list_checkpoints(root)) steps.push_back(info.step);
        return steps;
    }

    void on_root(const std::function<void()>& action) {
        if (ranks_.is_root()) action();
        ranks_.barrier();
    }

    void damage(std::int64_t step) {
        on_root([&] {
            const fs::path file = root / fmt::format("step-{:06}", step) /
                                  fmt::format("shard-00000-of-{:05}.safetensors", ranks_.size());
            std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
            bytes.seekp(-2, std::ios::end);
            bytes.put('\x55');
        });
    }

    const fs::path root = folder_ / "run" / "ckpt";
};

TEST_F(Checkpoints, KeepAnEvaluationThatFoundNoNumber) {
    Share share = mine(1);
    const EvaluationRecord evaluated{{{"accuracy", 0.5}, {"loss", std::nan("")}}, "accuracy 50 %"};
    save({.step = 1, .evaluated = evaluated}, share);
    const auto found = load_checkpoint(ranks_, root, tensors, share.pieces);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->evaluated.text, evaluated.text);
    EXPECT_EQ(found->evaluated.metrics.at("accuracy"), 0.5);
    EXPECT_TRUE(std::isnan(found->evaluated.metrics.at("loss")));
}

TEST(CheckpointManifest, OfEarlierVersionsCountsEveryStepAsAnUpdate) {
    CheckpointManifest manifest{.state = {.step = 7, .updates = 5}, .tensors = {}, .pieces = {}};
    const std::string text = checkpoint_manifest_text(manifest);
    EXPECT_EQ(parse_checkpoint_manifest(text, "new").state.updates, 5);
    Json earlier = parse_json(text, "new"), state = earlier["state"];
    earlier.erase("digest");
    state.erase("updates");
    earlier["state"] = state;
    earlier["digest"] = hash128(earlier.dump()).hex();
    EXPECT_EQ(parse_checkpoint_manifest(earlier.dump(), "earlier").state.updates, 7);
}

TEST_F(Checkpoints, AreReadByAnyOtherNumberOfRanks) {
    save(7);
    for (int readers = 1; readers <= 8; ++readers)
        for (int reader = 0; reader < readers; ++reader) {
            Share expected = share_of(reader, readers, 7), found = share_of(reader, readers, -1);
            EXPECT_EQ(load_step(found), 7);
            EXPECT_EQ(found.memory, expected.memory) << reader << " of " << readers;
        }
}

TEST_F(Checkpoints, NewestWholeOneWins) {
    save(1);
    save(2);
    save(3);
    damage(3);
    Share expected = mine(2), found = mine();
    EXPECT_EQ(load_step(found), 2);
    EXPECT_EQ(found.memory, expected.memory);
}

TEST_F(Checkpoints, ADamagedOneThatWasAskedForIsNotThere) {
    save(1);
    save(2);
    damage(1);
    Share found = mine();
    EXPECT_EQ(load_step(found, 1), -1);
    EXPECT_EQ(load_step(found, 2), 2);
    EXPECT_EQ(load_step(found, 3), -1);
}

TEST_F(Checkpoints, OnlyTheNewestAndTheBestAreKept) {
    for (std::int64_t step = 1; step <= 5; ++step) save(step, 2, 2);
    EXPECT_THAT(steps_there(), ElementsAre(2, 4, 5));
    save(6, 2, 6);
    EXPECT_THAT(steps_there(), ElementsAre(5, 6)) << "the best is among them";
    for (std::int64_t step = 7; step <= 9; ++step) save(step, 2);
    EXPECT_THAT(steps_there(), ElementsAre(8, 9)) << "none is the best";
}

// Even steps, for odd ones to roll back to: each of the newest may be the one that is whole.
TEST_F(Checkpoints, WhatTheNewestNeedIsKept) {
    for (const std::int64_t step : {10, 12, 13, 15, 17}) {
        Share share = mine(1);
        save({.step = step, .retention = {.last = 2, .rollback = 4}}, share);
    }
    EXPECT_THAT(steps_there(), ElementsAre(12, 15, 17));
}

TEST_F(Checkpoints, ADamagedNewerOneNeverPushesOutAWholeOne) {
    save(1, 1);
    save(3, 2);
    damage(3);
    save(2, 1);
    EXPECT_THAT(steps_there(), ElementsAre(2));
}

TEST_F(Checkpoints, UnfinishedOnesAreNeverLoadedAndAreRemoved) {
    save(1);
    on_root([&] {
        fs::create_directories(root / ".tmp-step-000002-i1");
        std::ofstream(root / ".tmp-step-000002-i1" / "manifest.json") << "{}";
    });
    Share found = mine();
    EXPECT_EQ(load_step(found), 1);
    on_root([&] { remove_unfinished_checkpoints(root); });
    EXPECT_FALSE(fs::exists(root / ".tmp-step-000002-i1"));
    ranks_.barrier();
}

TEST_F(Checkpoints, NothingToLoadIsNoErrorButAllDamagedIsOneOnAllRanks) {
    Share found = mine();
    EXPECT_EQ(load_step(found), -1);
    save(1);
    damage(1);
    EXPECT_EQ(caught_code([&] { load_step(found); }), "E303");
}

TEST_F(Checkpoints, AnotherModelIsNamed) {
    save(1);
    const std::vector<TensorMeta> other = {
        {"fc.weight", {20, 51}}, {"fc.bias", {7}}, {"scale", {}}};
    const Error error = test::error_of([&] { load_checkpoint(ranks_, root, other, {}); });
    EXPECT_EQ(error.code(), "E304");
    EXPECT_THAT(error.why(), has("'fc.weight' [20,50]", "'fc.weight' [20,51]"));
}

TEST_F(Checkpoints, EveryFlippedBitIsFound) {
    save(1);
    const fs::path folder_of_step = root / "step-000001";
    on_root([&] {
        for (const auto& entry : fs::directory_iterator(folder_of_step)) {
            const std::string whole = read_file(entry.path());
            for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 60) {
                std::string flipped = whole;
                flipped[at] = static_cast<char>(flipped[at] ^ 4);
                std::ofstream(entry.path(), std::ios::binary) << flipped;
                EXPECT_THROW(verify_checkpoint(folder_of_step), Error)
                    << entry.path().filename() << " byte " << at;
            }
            std::ofstream(entry.path(), std::ios::binary) << whole;
        }
        EXPECT_NO_THROW(verify_checkpoint(folder_of_step));
    });
}

// A checkpoint whose tensors are cut between all ranks; rank 0 exports it.
class Exported : public test::SharedFolder {
  protected:
    explicit Exported(const std::string& state = "momentum") {
        const std::vector<TensorMeta> metas{
            {"w", {2, 6}}, {"running_mean", {12}}, {"optimizer." + state + ".w", {2, 6}}};
        const test::Share share(metas, ranks_.rank(), ranks_.size(), 0.5F, 12);
        CheckpointSave(ranks_,
                       {.root = root_},
                       {{.step = 7, .counters = {{"batches", 1LL << 40}}}, metas, share.pieces})
            .finish();
    }

    ExportSummary exported(ExportedTensors which = ExportedTensors::of_model) const {
        return export_checkpoint(list_checkpoints(root_).at(0).path, path_, {.tensors = which});
    }

    static std::vector<std::string> names_of(const WeightsFile& file) {
        std::vector<std::string> names;
        for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
        return names;
    }

    const fs::path root_ = folder_ / "ckpt", path_ = root_ / "a.safetensors";
};

TEST_F(Exported, TensorsAreWholeUnderTheModelsNames) {
    if (!ranks_.is_root()) return;
    const ExportSummary summary = exported();
    EXPECT_EQ(summary.step, 7);
    EXPECT_EQ(summary.tensors, 3u);
    EXPECT_EQ(summary.bytes, fs::file_size(path_));
    const WeightsFile file(path_);
    EXPECT_THAT(names_of(file), ElementsAre("w", "running_mean", "batches"));
    EXPECT_THAT(file.tensors()[0].shape, ElementsAre(2, 6));
    std::vector<float> values(12), expected(12);
    for (std::size_t t = 0; t < 2; ++t) {
        std::iota(expected.begin(), expected.end(), 0.5F + 12 * static_cast<float>(t));
        file.read(file.tensors()[t], values);
        EXPECT_EQ(values, expected);
    }
    EXPECT_EQ(file.tensors()[2].dtype, "I64");
    std::int64_t counter = 0;
    const auto bytes = std::as_writable_bytes(std::span(&counter, 1));
    read_at(open_for_reading(path_).value(), bytes, file.tensors()[2].offset, path_);
    EXPECT_EQ(counter, 1LL << 40);
}

struct ExportedAverage : Exported {
    ExportedAverage() : Exported("average") {}
};

TEST_F(ExportedAverage, StandsForTheParameters) {
    if (!ranks_.is_root()) return;
    exported(ExportedTensors::averaged);
    const WeightsFile file(path_);
    EXPECT_THAT(names_of(file), ElementsAre("w", "running_mean", "batches"));
    std::vector<float> values(12);
    file.read(file.tensors()[0], values);
    EXPECT_EQ(values[0], 24.5F);
    file.read(file.tensors()[1], values);
    EXPECT_EQ(values[0], 12.5F) << "buffers have no average";
}

TEST_F(Exported, AverageIsMissedWhereThereIsNone) {
    if (!ranks_.is_root()) return;
    EXPECT_EQ(caught_code([&] { exported(ExportedTensors::averaged); }), "E106");
    EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Exported, TensorsAreAlsoTheOptimizersIfAsked) {
    if (!ranks_.is_root()) return;
    exported(ExportedTensors::all);
    EXPECT_THAT(names_of(WeightsFile(path_)),
                ElementsAre("w", "running_mean", "optimizer.momentum.w", "batches"));
    EXPECT_EQ(caught_code([&] { exported(); }), "E407");
}

// Each rank has a folder with a file of its own; the run is rank 0's to look at.
class FirstWeights : public InFolder {
  protected:
    FirstWeights() { settings_.run = folder_ / "run"; }

    InitialWeights settled(const Json& recorded = Json::object()) {
        return settle_initial_weights(ranks_, settings_, recorded);
    }
    std::string error(const Json& recorded = Json::object()) {
        return caught_text([&] { settled(recorded); });
    }
    void give_file(const std::string& content) {
        settings_.load_weights = folder_.file("w.safetensors", content);
    }
    void save_checkpoint_of_run() {
        fs::create_directories(settings_.run / "ckpt" / "step-000007");
    }

    Communicator ranks_ = Communicator::world();
    TrainSettings settings_;
};

TEST_F(FirstWeights, AreTheSeedsWithoutAFileOrItsDigestAndWhatIsLeftOut) {
    EXPECT_EQ(settled().fact, "");
    EXPECT_EQ(settled().file, "");
    give_file("abc");
    EXPECT_EQ(settled().fact, file_digest(settings_.load_weights));
    EXPECT_EQ(settled().file, settings_.load_weights);
    settings_.load_skip = "fc.*";
    EXPECT_EQ(settled().fact, file_digest(settings_.load_weights) + " without fc.*");
}

TEST_F(FirstWeights, OfAnotherFileOnSomeRankAreRefused) {
    const bool is_last = ranks_.rank() == ranks_.size() - 1;
    give_file(is_last && ranks_.size() > 1 ? "abd" : "abc");
    if (ranks_.size() == 1) {
        EXPECT_EQ(error(), "");
        return;
    }
    EXPECT_THAT(error(), HasSubstr("E605"));
    give_file("abc");
    if (is_last) fs::remove(settings_.load_weights);
    EXPECT_THAT(error(), HasSubstr("E201"));
}

TEST_F(FirstWeights, ComeFromACheckpointOnceThereIsOne) {
    give_file("abc");
    const std::string digest = settled().fact;
    save_checkpoint_of_run();
    EXPECT_EQ(settled({{"load-weights", digest}}).fact, digest) << "compared, and not read";
    EXPECT_EQ(settled({{"load-weights", digest}}).file, "");
    give_file("abd");
    EXPECT_NE(settled({{"load-weights", digest}}).fact, digest) << "E306 for the caller";
    fs::remove(settings_.load_weights);
    EXPECT_EQ(settled({{"load-weights", digest}}).fact, digest) << "the file is gone";
    settings_.load_weights.clear();
    EXPECT_EQ(settled({{"load-weights", digest}}).fact, digest) << "the option, too";
    EXPECT_EQ(settled().fact, "");
}

TEST_F(FirstWeights, AreNeededUntilThereIsACheckpoint) {
    EXPECT_THAT(error({{"load-weights", "0123"}}), HasSubstr("E105: --load-weights is missing"));
    settings_.load_weights = folder_ / "none";
    EXPECT_THAT(error({{"load-weights", "0123"}}), HasSubstr("E201"));
    save_checkpoint_of_run();
    EXPECT_THAT(error(), HasSubstr("E201")) << "nothing was recorded that could stand for it";
}

}  // namespace
}  // namespace lockstep
