// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/placement.hpp"
#include "lockstep/launch/examine.hpp"
#include "lockstep/launch/live_placement.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RankFacts, AreReadOnceForAllThatAskBeforeTheFirstStep) {
    int reads = 0;
    const RankFacts facts([&] {
        ++reads;
        return read_topology({"/", nullptr});
    });
    const Communicator alone;
    static_cast<void>(binding_note(facts));
    EXPECT_EQ(reads, 0) << "a rank that is alone on its node is not bound";
    const LivePlacement live = place_live(alone, facts, {.compute_on = ComputeOn::cpus});
    const DoctorFacts mine = examine_rank(alone, facts, {});
    EXPECT_EQ(mine.node, facts.node());
    EXPECT_EQ(live.plan.seats.at(0).host, facts.node().host);
    EXPECT_EQ(reads, 1);
}

TEST(RankFacts, AreNotReadByARankThatWasBoundBefore) {
    ::setenv(bound_variable, "0", 1);
    ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0", 1);
    ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    int reads = 0;
    const RankFacts facts([&] {
        ++reads;
        return NodeTopology();
    });
    EXPECT_TRUE(bind_rank(facts).empty());
    EXPECT_EQ(binding_note(facts), "");
    EXPECT_EQ(reads, 0);
    for (const char* name :
         {bound_variable, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"})
        ::unsetenv(name);
}

}  // namespace
}  // namespace lockstep
