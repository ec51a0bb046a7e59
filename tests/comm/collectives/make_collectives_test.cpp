// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/collectives.hpp"

#include "base/one_node.hpp"
#include "support/caught.hpp"
#include "support/mpi_test.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

TEST(MakeCollectives, PicksByWhereTheRanksAre) {
    const bool one_node = are_on_one_node(ranks());
    const auto group = make_collectives(ranks());
    EXPECT_EQ(group->name(), one_node ? "shared-memory" : "hierarchical");
    std::vector<float> data(1000, 1);
    group->all_reduce(data.data(), data.size(), DataType::float32);
    EXPECT_EQ(data.back(), static_cast<float>(ranks().size()));
}

TEST(MakeAllReduce, DoesNotShareMemoryAcrossNodes) {
    const bool one_node = are_on_one_node(ranks());
    const std::string code =
        test::caught_code([] { make_all_reduce(ranks(), Algorithm::shared_memory); });
    EXPECT_EQ(code, one_node ? "" : "E631");
}

}  // namespace
