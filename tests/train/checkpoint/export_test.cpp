// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/safetensors.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "support/caught.hpp"
#include "train/checkpoint/shares.hpp"

#include <numeric>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::caught_code;
using testing::ElementsAre;

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

    fs::path checkpoint() const { return list_checkpoints(root_).at(0).path; }

    static std::vector<std::string> names_of(const WeightsFile& file) {
        std::vector<std::string> names;
        for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
        return names;
    }

    const fs::path root_ = folder_ / "ckpt";
};

TEST_F(Exported, TensorsAreWholeUnderTheModelsNames) {
    if (!ranks_.is_root()) return;
    const fs::path path = root_ / "a.safetensors";
    const ExportSummary summary = export_checkpoint(checkpoint(), path);
    EXPECT_EQ(summary.step, 7);
    EXPECT_EQ(summary.tensors, 3u);
    EXPECT_EQ(summary.bytes, fs::file_size(path));
    const WeightsFile file(path);
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
    const UniqueFd fd = open_for_reading(path);
    read_at(
        fd.value(), std::as_writable_bytes(std::span(&counter, 1)), file.tensors()[2].offset, path);
    EXPECT_EQ(counter, 1LL << 40);
}

struct ExportedAverage : Exported {
    ExportedAverage() : Exported("average") {}
};

TEST_F(ExportedAverage, StandsForTheParameters) {
    if (!ranks_.is_root()) return;
    const fs::path path = root_ / "a.safetensors";
    export_checkpoint(checkpoint(), path, {.tensors = ExportedTensors::averaged});
    const WeightsFile file(path);
    EXPECT_THAT(names_of(file), ElementsAre("w", "running_mean", "batches"));
    std::vector<float> values(12);
    file.read(file.tensors()[0], values);
    EXPECT_EQ(values[0], 24.5F);
    file.read(file.tensors()[1], values);
    EXPECT_EQ(values[0], 12.5F) << "buffers have no average";
}

TEST_F(Exported, AverageIsMissedWhereThereIsNone) {
    if (!ranks_.is_root()) return;
    EXPECT_EQ(caught_code([&] {
                  export_checkpoint(
                      checkpoint(), root_ / "a", {.tensors = ExportedTensors::averaged});
              }),
              "E106");
    EXPECT_FALSE(fs::exists(root_ / "a"));
}

TEST_F(Exported, TensorsAreAlsoTheOptimizersIfAsked) {
    if (!ranks_.is_root()) return;
    const fs::path path = root_ / "a.safetensors";
    export_checkpoint(checkpoint(), path, {.tensors = ExportedTensors::all});
    EXPECT_THAT(names_of(WeightsFile(path)),
                ElementsAre("w", "running_mean", "optimizer.momentum.w", "batches"));
    EXPECT_EQ(caught_code([&] { export_checkpoint(checkpoint(), path); }), "E407");
}

}  // namespace
}  // namespace lockstep
