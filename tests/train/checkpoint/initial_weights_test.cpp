// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/initial_weights.hpp"

#include "lockstep/train/checkpoint.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::caught_text;
using testing::HasSubstr;

// Each rank has a folder with a file of its own; the run is rank 0's to look at.
class FirstWeights : public testing::Test {
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
    test::TempDir folder_;
    TrainSettings settings_;
};

TEST_F(FirstWeights, AreTheSeedsWithoutAFile) {
    EXPECT_EQ(settled().fact, "");
    EXPECT_EQ(settled().file, "");
}

TEST_F(FirstWeights, OfAFileAreItsDigestAndWhatIsLeftOut) {
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
