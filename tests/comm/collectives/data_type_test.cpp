// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/data_type.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;

TEST(DataType, IsNamedAsInNcclTests) {
    EXPECT_EQ(name_of(DataType::float32), "float");
    EXPECT_EQ(name_of(DataType::bfloat16), "bfloat16");
}

RC_GTEST_PROP(Stripes, CoverAllElementsOnceInOrderAndBeginAtLines, ()) {
    const auto count = *rc::gen::inRange<std::size_t>(0, 100000);
    const auto type = *rc::gen::elementOf(
        std::vector<DataType>(all_data_types().begin(), all_data_types().end()));
    const int parts = *rc::gen::inRange(1, 65);
    std::size_t end = 0;
    for (int i = 0; i < parts; ++i) {
        const ElementRange stripe = stripe_of(count, type, i, parts);
        RC_ASSERT(stripe.begin == end);
        RC_ASSERT(stripe.begin * size_of(type) % 64 == 0 || stripe.size() == 0);
        end = stripe.end;
    }
    RC_ASSERT(end == count);
}

}  // namespace
