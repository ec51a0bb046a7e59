// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/inspect.hpp"

#include "data/samples.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Inspect, ShowsWhatIsThere) {
    const test::TempDir folder;
    PackOptions options = test::options_for(folder, test::make_samples(1000), "toy", Codec::lz4);
    options.class_names = {
        "zero", "one", "two", "three", "four", "\x1b[31mfive", "6", "7", "8", "9"};
    options.shards = 2;
    pack_dataset(options);
    const std::string text = describe_dataset(DatasetIndex::open(options.output));
    for (const char* expected : {"toy (train)",
                                 "1,000 in 63 blocks of 16 rows",
                                 "in 2 shards",
                                 "codec lz4",
                                 "shuffled:0",
                                 "images",
                                 "[1, 4, 4]",
                                 "labels",
                                 "scalar",
                                 "mean 0.",
                                 "3 three",
                                 "toy-00001-of-00002.h5"})
        EXPECT_THAT(text, HasSubstr(expected));
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Inspect, StaysWithinEightyColumns) {
    const test::TempDir folder;
    PackOptions options = test::options_for(folder, test::make_samples(100), "t");
    pack_dataset(options);
    std::istringstream lines(describe_dataset(DatasetIndex::open(options.output)));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

}  // namespace
}  // namespace lockstep
