// SPDX-License-Identifier: Apache-2.0
// Samples that a test packs as it likes, and reads.
#pragma once

#include "data/samples.hpp"

#include <gtest/gtest.h>
#include <sched.h>

namespace lockstep::test {

/// This thread and those that it starts. Returns where it ran before.
inline cpu_set_t keep_to_one_core() {
    cpu_set_t allowed, one;
    EXPECT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    return allowed;
}

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

/// Samples packed into "toy", by the codec that is the test's parameter.
class PackedByCodec : public testing::TestWithParam<Codec> {
  protected:
    PackedByCodec(int shards, Samples samples, std::vector<std::string> class_names = {})
        : samples_(std::move(samples)) {
        options_ = options_for(folder_, samples_, "toy", GetParam());
        options_.shards = shards;
        options_.class_names = std::move(class_names);
        pack_again();
    }
    void pack_again() {
        fs::remove_all(options_.output);
        manifest_ = pack_dataset(options_).manifest;
    }
    fs::path shard(std::size_t number) const {
        return options_.output / manifest_.shards[number].name;
    }

    TempDir folder_;
    Samples samples_;
    IdxPack options_;
    Manifest manifest_;
};

/// For INSTANTIATE_TEST_SUITE_P(Codecs, ...).
inline const auto each_codec =
    testing::Values(Codec::none, Codec::deflate, Codec::lz4, Codec::zstd);

inline std::string name_of_codec(const testing::TestParamInfo<Codec>& codec) {
    return std::string(codec_name(codec.param));
}

}  // namespace lockstep::test
