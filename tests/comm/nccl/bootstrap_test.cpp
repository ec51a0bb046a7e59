// SPDX-License-Identifier: Apache-2.0
// The bootstrap over MPI, and what ranks of several processes agree on before NCCL is asked.
#include "lockstep/comm/bootstrap.hpp"

#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/clock.hpp"

#include "comm/nccl/fake_cuda.hpp"
#include "comm/nccl/fake_nccl.hpp"
#include "support/caught.hpp"
#include "support/mpi_test.hpp"

#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using lockstep::Bootstrap;
using lockstep::CudaDeviceFacts;
using lockstep::Environment;
using lockstep::NcclOptions;
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

/// The error of starting a communicator over MPI with a made-up NCCL on every rank.
std::string start_error(const CudaDeviceFacts& gpu, NcclOptions options, int nccl_version = 22809) {
    lockstep::test::FakeCuda cuda;
    lockstep::test::FakeNccl nccl(cuda);
    nccl.version = nccl_version;
    const auto bootstrap = lockstep::make_bootstrap(ranks());
    const auto runtime =
        std::make_shared<lockstep::GpuRuntime>(std::make_unique<lockstep::NcclApi>(nccl.api()),
                                               std::make_unique<lockstep::CudaApi>(cuda.api(gpu)),
                                               "a fake NCCL");
    const std::string text =
        caught_text([&] { lockstep::NcclCommunicator(runtime, *bootstrap, options); });
    ranks().barrier();
    return text;
}

CudaDeviceFacts own_gpu() {
    return {fmt::format("GPU-{}", ranks().rank()), "0000:01:00.0", "fake", 1};
}

NcclOptions with_settings(std::map<std::string, std::string> settings) {
    NcclOptions options;
    options.environment = Environment(std::move(settings));
    return options;
}

TEST(NcclAgreement, NamesBothRanksOfOneGpuOnAllRanks) {
    LOCKSTEP_NEEDS_RANKS(2);
    EXPECT_THAT(start_error({"GPU-one", "0000:01:00.0", "fake", 1}, with_settings({})),
                HasSubstr("error E673: ranks 0 and 1 use the same GPU: GPU-one (0000:01:00.0)"));
}

TEST(NcclAgreement, NamesVersionsThatDiffer) {
    LOCKSTEP_NEEDS_RANKS(2);
    EXPECT_THAT(start_error(own_gpu(), with_settings({}), ranks().is_root() ? 22703 : 22809),
                HasSubstr("2.27.3 on rank 0, 2.28.9 on rank"));
}

TEST(NcclAgreement, NamesSettingsThatDiffer) {
    LOCKSTEP_NEEDS_RANKS(2);
    const auto options = with_settings({{"NCCL_ALGO", ranks().is_root() ? "Tree" : "Ring"}});
    const std::string text = start_error(own_gpu(), options);
    EXPECT_THAT(text, HasSubstr("error E675: ranks have different NCCL settings: NCCL_ALGO is "));
    EXPECT_THAT(text, HasSubstr("'Tree' on rank 0"));
}

TEST(NcclAgreement, TellsAllWhenOneRankHasNoSuchGpu) {
    LOCKSTEP_NEEDS_RANKS(2);
    NcclOptions options = with_settings({});
    options.device = ranks().is_root() ? 3 : 0;
    EXPECT_THAT(start_error(own_gpu(), options),
                HasSubstr(ranks().is_root() ? "error E670: no GPU 3 on"
                                            : "error E682: rank 0 gave up: no GPU 3 on"));
}

// Each process has a made-up NCCL of its own: none ever meets the others, so all run out of time.
TEST(NcclStart, NamesThePhaseInWhichEveryRankWas) {
    LOCKSTEP_NEEDS_RANKS(2);
    NcclOptions options = with_settings({});
    options.init_deadline_s = 2;
    const std::string text = start_error(own_gpu(), options);
    EXPECT_THAT(text, HasSubstr("communicator 'gradients' was not ready within 2.0s"));
    EXPECT_THAT(text, HasSubstr("'init'"));
    EXPECT_THAT(text, HasSubstr("aborted 'gradients'"));
}

}  // namespace
