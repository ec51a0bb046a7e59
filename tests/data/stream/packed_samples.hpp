// SPDX-License-Identifier: Apache-2.0
// Samples that a test packs as it likes, and reads.
#pragma once

#include "data/samples.hpp"

#include <gtest/gtest.h>

namespace lockstep::test {

class PackedSamples : public testing::Test {
  protected:
    std::shared_ptr<const DatasetIndex> pack(Codec codec = Codec::none,
                                             int shards = 3,
                                             std::uint32_t block_rows = 16) {
        options_ = options_for(folder_, samples_, "toy", codec);
        options_.shards = shards;
        options_.block_rows = block_rows;
        return packed(options_);
    }

    TempDir folder_;
    Samples samples_ = make_samples(500);
    IdxPack options_;
};

}  // namespace lockstep::test
