// SPDX-License-Identifier: Apache-2.0
// The bootstrap over MPI. What ranks agree on by it is in nccl_communicator_test.
#include "lockstep/comm/bootstrap.hpp"

#include "lockstep/core/clock.hpp"

#include "support/caught.hpp"
#include "support/mpi_test.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace {

using lockstep::test::caught_text;
using lockstep::test::ranks;
using testing::HasSubstr;

TEST(Bootstrap, GathersEveryonesBytesInOrder) {
    const auto bootstrap = lockstep::make_bootstrap(ranks());
    for (int round = 0; round < 50; ++round) {
        const std::string mine(static_cast<std::size_t>(ranks().rank() * 5000 + round), 'x');
        const auto all = gather_all(*bootstrap, mine, 30, "a round");
        for (int rank = 0; rank < ranks().size(); ++rank)
            EXPECT_EQ(all[static_cast<std::size_t>(rank)].size(),
                      static_cast<std::size_t>(rank * 5000 + round));
    }
}

TEST(Bootstrap, NamesRanksThatDoNotCome) {
    LOCKSTEP_NEEDS_RANKS(2);
    const auto bootstrap = lockstep::make_bootstrap(ranks());
    const int last = ranks().size() - 1;
    if (ranks().rank() != last) {
        EXPECT_THAT(caught_text([&] { gather_all(*bootstrap, "x", 1, "the end"); }),
                    HasSubstr(fmt::format("error E630: rank {} did not come to 'the end'", last)));
    }
    ranks().barrier();
}

TEST(Bootstrap, HearsAnnouncementsOnce) {
    LOCKSTEP_NEEDS_RANKS(2);
    const auto bootstrap = lockstep::make_bootstrap(ranks());
    if (ranks().is_root()) bootstrap->announce("the disk is full");
    int heard = 0;
    const double end = lockstep::now_s() + 20;
    while (heard < (ranks().is_root() ? 0 : 1) && lockstep::now_s() < end)
        if (const auto notice = bootstrap->notice()) {
            ++heard;
            EXPECT_EQ(notice->rank, 0);
            EXPECT_EQ(notice->text, "the disk is full");
        }
    ranks().barrier();
    EXPECT_EQ(bootstrap->notice().has_value(), false);
    EXPECT_EQ(heard, ranks().is_root() ? 0 : 1);
}

}  // namespace
