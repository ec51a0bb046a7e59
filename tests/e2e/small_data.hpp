// SPDX-License-Identifier: Apache-2.0
// A small data set, packed once for a test program by the program under test.
#pragma once

#include "data/samples.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

/// 600 images of 28x28 in 10 classes for training and 200 to test on, with their IDX files.
class SmallData {
  public:
    /// The one of this process; made by the first call, removed at its end.
    static const SmallData& get();

    fs::path train() const { return folder_ / "train"; }
    fs::path test() const { return folder_ / "test"; }
    fs::path images() const { return folder_ / "train-images.idx"; }
    fs::path labels() const { return folder_ / "train-labels.idx"; }

    /// The only shard of a data set.
    static fs::path shard(const fs::path& folder);

  private:
    SmallData();
    TempDir folder_;
};

/// A copy of the packed training set as `folder`, to be damaged.
void copy_train_set(const fs::path& folder);

}  // namespace lockstep::test
