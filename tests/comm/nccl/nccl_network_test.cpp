// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_network.hpp"

#include "lockstep/core/record.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace {

using namespace lockstep;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Networks = std::vector<RankNetwork>;

const NcclTransport nvlink{NcclTransportKind::nvlink};
const NcclTransport shared{NcclTransportKind::shared_memory};
const NcclTransport sockets{NcclTransportKind::sockets, false, "eth0"};
const NcclTransport direct{NcclTransportKind::infiniband, true, "mlx5_0"};
const NcclTransport through_host{NcclTransportKind::infiniband, false, "mlx5_0"};

/// `ranks` ranks, `on_node` to a node, each of which sends to all others.
Networks network(int ranks,
                 int on_node,
                 const NcclTransport& inside,
                 const NcclTransport& between) {
    Networks all;
    for (int rank = 0; rank < ranks; ++rank) {
        const std::string host = fmt::format("node{}", rank / on_node);
        RankNetwork& own = all.emplace_back();
        own.host = own.node = host;
        for (int to = 0; to < ranks; ++to)
            if (to != rank)
                own.report.links.push_back(
                    {rank, to, to / on_node == rank / on_node ? inside : between});
    }
    return all;
}

void have_ports(Networks& all) {
    for (RankNetwork& rank : all) rank.rdma_ports = {"mlx5_0:1"};
}

TEST(NcclNetwork, IsFoldedForPeople) {
    auto all = network(8, 4, nvlink, direct);
    have_ports(all);
    for (auto& link : all[7].report.links)
        if (link.to < 4) link.transport.through = "mlx5_1";
    const auto summary = summarize_network(all);
    EXPECT_EQ(summary.text,
              "8 ranks on 2 nodes: NVLink inside nodes; InfiniBand with GPUDirect (mlx5_0, mlx5_1) "
              "between");
    EXPECT_THAT(summary.warnings, IsEmpty());
    EXPECT_EQ(summary.not_reported, 0);
    ASSERT_EQ(summary.shares.size(), 2u);
    EXPECT_EQ(summary.shares[0].pairs, 2 * 4 * 3);
    EXPECT_EQ(summary.shares[1].of, 2 * 4 * 4);
}

TEST(NcclNetwork, HasNoBetweenOnOneNodeAndNoInsideWithOneRankEach) {
    EXPECT_EQ(summarize_network(network(4, 4, shared, sockets)).text,
              "4 ranks on 1 node: shared memory");
    EXPECT_EQ(summarize_network(network(2, 1, shared, sockets)).text,
              "2 ranks on 2 nodes: sockets (eth0) between");
    EXPECT_EQ(summarize_network(network(1, 1, shared, sockets)).text, "");
}

TEST(NcclNetwork, CountsPairsOfEachKindAndThoseNotReported) {
    auto all = network(4, 4, nvlink, sockets);
    all[0].report.links[0].transport = {NcclTransportKind::pcie, false, "SYS"};
    all[3].report.links.clear();
    const auto summary = summarize_network(all);
    EXPECT_EQ(summary.text,
              "4 ranks on 1 node: NVLink for 8 of 12 pairs, PCIe (SYS) for 1 of 12 pairs, not "
              "reported for 3 of 12 pairs");
    EXPECT_EQ(summary.not_reported, 3);
}

TEST(NcclNetwork, SaysWhyNothingIsReported) {
    auto all = network(2, 2, nvlink, sockets);
    for (RankNetwork& rank : all) {
        rank.report = {};
        rank.why_none = "NCCL_DEBUG=WARN is set";
    }
    EXPECT_EQ(summarize_network(all).text,
              "2 ranks on 1 node: not reported: NCCL_DEBUG=WARN is set");
}

TEST(NcclNetwork, PassesOverRanksThatDoNotExist) {
    auto all = network(2, 2, nvlink, sockets);
    all[0].report.links.push_back({0, 7, nvlink});
    all[0].report.links.push_back({-1, 1, nvlink});
    EXPECT_EQ(summarize_network(all).text, "2 ranks on 1 node: NVLink");
}

TEST(NcclNetwork, WarnsOfRdmaThatIsThereAndUnused) {
    auto all = network(4, 2, nvlink, sockets);
    EXPECT_THAT(summarize_network(all).warnings, IsEmpty());
    have_ports(all);
    const auto says = [&] { return summarize_network(all).warnings; };
    EXPECT_THAT(says(),
                ElementsAre(AllOf(HasSubstr("RDMA hardware mlx5_0:1 is active on node0, node1, but "
                                            "NCCL sends between nodes over sockets: NCCL does not "
                                            "say why"),
                                  HasSubstr("fix: "))));
    for (RankNetwork& rank : all) rank.report.finds_no_device = true;
    EXPECT_THAT(says(), ElementsAre(HasSubstr("pass /dev/infiniband")));
    for (RankNetwork& rank : all) rank.report.lacks_verbs = true;
    EXPECT_THAT(says(), ElementsAre(HasSubstr("cannot open libibverbs; fix: install it")));
    for (RankNetwork& rank : all) rank.forbids_rdma = "NCCL_IB_DISABLE=1";
    EXPECT_THAT(says(), ElementsAre(HasSubstr("NCCL_IB_DISABLE=1 is set; fix: unset it")));
}

TEST(NcclNetwork, WarnsOfRdmaThroughTheHost) {
    auto all = network(4, 2, nvlink, through_host);
    have_ports(all);
    EXPECT_THAT(summarize_network(all).warnings,
                ElementsAre(HasSubstr("through the host's memory on node0, node1: no GPUDirect; "
                                      "fix: 'lockstep doctor --only F6,F7,F8'")));
}

TEST(NcclNetwork, HasNothingToSayOfPortsOnOneNode) {
    auto all = network(4, 4, sockets, sockets);
    have_ports(all);
    EXPECT_THAT(summarize_network(all).warnings, IsEmpty());
}

TEST(NcclNetwork, SurvivesTheTrip) {
    auto rank = network(3, 2, nvlink, direct).front();
    rank.rdma_ports = {"mlx5_0:1"};
    rank.forbids_rdma = "NCCL_NET=Socket";
    rank.report.version = "2.28.9";
    rank.report.lacks_verbs = rank.report.finds_no_device = true;
    rank.why_none = "why";
    EXPECT_EQ(lockstep::deserialize<RankNetwork>(lockstep::serialize(rank), "network"), rank);
}

// What rank 0 reads of a thousand ranks must stay small.
TEST(NcclNetwork, IsToldInFewBytesALink) {
    const auto all = network(1024, 8, nvlink, direct);
    EXPECT_LT(lockstep::serialize(all.front()).size(), 1023 * 12u);
    const auto summary = summarize_network(all);
    EXPECT_EQ(summary.not_reported, 0);
    EXPECT_EQ(summary.shares[1].pairs, 1024 * 1016);
}

TEST(NcclNetwork, KnowsWhatForbidsRdma) {
    const auto by = [](const std::map<std::string, std::string>& variables) {
        return lockstep::rdma_forbidden_by(Environment(variables), "/nowhere");
    };
    EXPECT_EQ(by({}), "");
    EXPECT_EQ(by({{"NCCL_IB_DISABLE", "0"}, {"NCCL_NET", "IB"}}), "");
    EXPECT_EQ(by({{"NCCL_IB_DISABLE", "1"}}), "NCCL_IB_DISABLE=1");
    EXPECT_EQ(by({{"NCCL_NET", "Socket"}}), "NCCL_NET=Socket");
}

TEST(NcclNetwork, NamesThePeersOfARank) {
    const auto all = network(6, 3, nvlink, direct);
    EXPECT_EQ(links_text(all[0].report, 0),
              "ranks 3-5 by InfiniBand with GPUDirect (mlx5_0), ranks 1-2 by NVLink");
    EXPECT_EQ(links_text(all[0].report, 1), "");
}

}  // namespace
