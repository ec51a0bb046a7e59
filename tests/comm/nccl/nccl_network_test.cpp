// SPDX-License-Identifier: Apache-2.0
// Lines in the forms that NCCL's sources have (each named with its tag), as they are seen in the
// threads of github.com/NVIDIA/nccl/issues that are named; hosts and addresses are ours.
#include "lockstep/comm/nccl_network.hpp"

#include "lockstep/core/record.hpp"

#include "support/unit.hpp"

#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

namespace {

using namespace lockstep;
using Networks = std::vector<RankNetwork>;
using Settings = std::map<std::string, std::string>;

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
    const auto six = network(6, 3, nvlink, direct);
    EXPECT_EQ(links_text(six[0].report, 0),
              "ranks 3-5 by InfiniBand with GPUDirect (mlx5_0), ranks 1-2 by NVLink");
    EXPECT_EQ(links_text(six[0].report, 1), "");
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

TEST(NcclNetwork, CountsPairsOfEachKindAndThoseNotReportedOrThatDoNotExist) {
    auto all = network(4, 4, nvlink, sockets);
    all[0].report.links[0].transport = {NcclTransportKind::pcie, false, "SYS"};
    all[3].report.links.clear();
    const auto summary = summarize_network(all);
    EXPECT_EQ(summary.text,
              "4 ranks on 1 node: NVLink for 8 of 12 pairs, PCIe (SYS) for 1 of 12 pairs, not "
              "reported for 3 of 12 pairs");
    EXPECT_EQ(summary.not_reported, 3);
    auto few = network(2, 2, nvlink, sockets);
    few[0].report.links.push_back({0, 7, nvlink});
    few[0].report.links.push_back({-1, 1, nvlink});
    EXPECT_EQ(summarize_network(few).text, "2 ranks on 1 node: NVLink");
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

TEST(NcclNetwork, WarnsOfRdmaThatIsThereAndUnused) {
    auto all = network(4, 2, nvlink, sockets);
    EXPECT_THAT(summarize_network(all).warnings, IsEmpty());
    have_ports(all);
    const auto says = [&] { return summarize_network(all).warnings; };
    EXPECT_THAT(says(),
                ElementsAre(has("RDMA hardware mlx5_0:1 is active on node0, node1, but "
                                "NCCL sends between nodes over sockets: NCCL does not "
                                "say why",
                                "fix: ")));
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
    auto one_node = network(4, 4, sockets, sockets);
    have_ports(one_node);
    EXPECT_THAT(summarize_network(one_node).warnings, IsEmpty());
}

TEST(NcclNetwork, SurvivesTheTrip) {
    auto rank = network(3, 2, nvlink, direct).front();
    rank.rdma_ports = {"mlx5_0:1"};
    rank.forbids_rdma = "NCCL_NET=Socket";
    rank.report.version = "2.28.9";
    rank.report.lacks_verbs = rank.report.finds_no_device = true;
    rank.why_none = "why";
    EXPECT_EQ(deserialize<RankNetwork>(serialize(rank), "network"), rank);
}

// What rank 0 reads of a thousand ranks must stay small.
TEST(NcclNetwork, IsToldInFewBytesALink) {
    const auto all = network(1024, 8, nvlink, direct);
    EXPECT_LT(serialize(all.front()).size(), 1023 * 12u);
    const auto summary = summarize_network(all);
    EXPECT_EQ(summary.not_reported, 0);
    EXPECT_EQ(summary.shares[1].pairs, 1024 * 1016);
}

TEST(NcclNetwork, KnowsWhatForbidsRdma) {
    const auto by = [](const Settings& variables) {
        return rdma_forbidden_by(Environment(variables), "/nowhere");
    };
    EXPECT_EQ(by({}), "");
    EXPECT_EQ(by({{"NCCL_IB_DISABLE", "0"}, {"NCCL_NET", "IB"}}), "");
    EXPECT_EQ(by({{"NCCL_IB_DISABLE", "1"}}), "NCCL_IB_DISABLE=1");
    EXPECT_EQ(by({{"NCCL_NET", "Socket"}}), "NCCL_NET=Socket");
}

/// 2.28.9-1: src/transport/{p2p,shm,net,net_ib}, src/graph/{topo,paths}.cc; the topology as in
/// nccl-tests issue 256 and nccl issue 1189, links as in issues 1814 and 1538.
constexpr const char* report_2_28 =
    "n0:70:88 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5\n"
    "NCCL version 2.28.9+cuda13.0\n"
    "n0:70:88 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB "
    "eth0:10.0.0.1<0>\n"
    "n0:70:88 [0] NCCL INFO Using network IB\n"
    "n0:70:88 [0] NCCL INFO === System : maxBw 48.0 totalBw 370.8 ===\n"
    "n0:70:88 [0] NCCL INFO CPU/0-0 (1/1/2)\n"
    "n0:70:88 [0] NCCL INFO + PCI[48.0] - PCI/0-17000 (104c823200000000)\n"
    "n0:70:88 [0] NCCL INFO              + PCI[48.0] - GPU/0-1b000 (0)\n"
    "n0:70:88 [0] NCCL INFO                            + NVL[370.8] - NVS/0-0\n"
    "n0:70:88 [0] NCCL INFO              + PCI[48.0] - GPU/0-43000 (1)\n"
    "n0:70:88 [0] NCCL INFO              + PCI[48.0] - GPU/0-65000 (2)\n"
    "n0:70:88 [0] NCCL INFO ==========================================\n"
    "n0:70:88 [0] NCCL INFO GPU/0-1b000 :GPU/0-1b000 (0/5000.0/LOC) GPU/0-43000 (2/370.8/NVL) "
    "GPU/0-65000 (4/24.0/PHB) NVS/0-0 (1/370.8/NVL) CPU/0-0 (2/48.0/PHB) NET/0-0 (3/50.0/PXB) \n"
    "n0:70:88 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 16, bw 20.0/20.0, type NVL/PXB\n"
    "n0:70:88 [0] NCCL INFO Channel 00/08 : 0 1 2 3\n"
    "n0:70:88 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    "n0:70:88 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
    "n0:70:88 [0] NCCL INFO Channel 00/1 : 0[0] -> 2[2] via P2P/IPC\n"
    "n0:70:91 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [receive] via NET/IB/1/GDRDMA\n"
    "n0:70:91 [0] NCCL INFO Channel 00/0 : 0[0] -> 3[0] [send] via NET/IB/0(2)/GDRDMA(PCI)/Shared\n"
    "n0:70:91 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n";

TEST(NcclReport, SaysWhichWayEachPairTakes) {
    const auto report = parse_nccl_report(report_2_28);
    EXPECT_EQ(report.version, "2.28.9+cuda13.0");
    EXPECT_THAT(report.links,
                ElementsAre(NcclLink{0, 1, {NcclTransportKind::nvlink}},
                            NcclLink{0, 2, {NcclTransportKind::pcie, false, "PHB"}},
                            NcclLink{0, 3, {NcclTransportKind::infiniband, true, "mlx5_0"}},
                            NcclLink{3, 0, {NcclTransportKind::infiniband, true, "mlx5_1"}}));
}

/// 2.14.3-1: buses in brackets and names of GPUs without the system, as in issue 1197.
TEST(NcclReport, IsReadInTheFormOf214) {
    const auto report = parse_nccl_report(
        "n0:70:88 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE ; OOB br0:10.0.0.1<0>\n"
        "n0:70:88 [1] NCCL INFO        + PCI[24.0] - GPU/4000 (0)\n"
        "n0:70:88 [1] NCCL INFO        + PCI[24.0] - GPU/5000 (1)\n"
        "n0:70:88 [1] NCCL INFO GPU/5000 :GPU/4000 (2/360.000000/NVL) GPU/5000 (0/5000.000000/LOC) "
        "CPU/0 (2/24.000000/PHB) \n"
        "n0:70:88 [1] NCCL INFO Channel 01 : 1[5000] -> 2[4000] [send] via NET/IB/0\n"
        "n0:70:88 [1] NCCL INFO Channel 00/0 : 1[5000] -> 0[4000] via P2P/IPC/read\n"
        "n0:70:88 [1] NCCL INFO Channel 00 : 1[5000] -> 3[5000] via SHM/direct/CE\n");
    EXPECT_THAT(report.links,
                ElementsAre(NcclLink{1, 0, {NcclTransportKind::nvlink}},
                            NcclLink{1, 2, {NcclTransportKind::roce, false, "mlx5_0"}},
                            NcclLink{1, 3, {NcclTransportKind::shared_memory}}));
}

/// 2.21.5-1: cards that work as one, and a GPU's name in capitals before the colon.
TEST(NcclReport, IsReadInTheFormOf221) {
    const auto report = parse_nccl_report(
        "n0:7:8 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} "
        "[2]mlx5_4:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
        "n0:7:8 [0] NCCL INFO + PCI[24.0] - GPU/0-5d000 (0)\n"
        "n0:7:8 [0] NCCL INFO + PCI[24.0] - GPU/0-9d000 (1)\n"
        "n0:7:8 [0] NCCL INFO GPU/5D000 :GPU/0-5d000 (0/5000.0/LOC) GPU/0-9d000 (5/12.0/SYS) \n"
        "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA\n"
        "n0:7:8 [0] NCCL INFO Channel 01/0 : 0[0] -> 2[0] [send] via NET/IB/2/GDRDMA\n");
    EXPECT_THAT(report.links,
                ElementsAre(NcclLink{0, 1, {NcclTransportKind::pcie, false, "SYS"}},
                            NcclLink{0, 2, {NcclTransportKind::infiniband, true, "mlx5_0+mlx5_1"}},
                            NcclLink{0, 2, {NcclTransportKind::roce, true, "mlx5_4"}}));
}

/// 2.30.7-1: src/transport/shm.cc has lost the second word; src/graph/topo.cc has one more.
TEST(NcclReport, IsReadInTheFormOf230) {
    const auto report = parse_nccl_report(
        "[2026-01-01 00:00:00] n0:7:8 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> "
        "[1]ib0:10.1.0.1<0>\n"
        "n0:7:8 [0] NCCL INFO + PCI[24.0] - GPU/0-5d000 (0) [MLOPart 1]\n"
        "n0:7:8 [0] NCCL INFO + PCI[24.0] - GPU/0-9d000 (1) [MLOPart 0]\n"
        "n0:7:8 [0] NCCL INFO GPU/0-5d000 :GPU/0-5d000 (0/5000.0/LOC) GPU/0-9d000 (1/24.0/C2C) \n"
        "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer\n"
        "n0:7:8 [0] NCCL INFO Channel 00 : 0[0] -> 2[2] via SHM/direct\n"
        "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 3[3] [send] via NET/Socket/1\n"
        "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] via P2P/MNNVL\n");
    EXPECT_THAT(report.links,
                ElementsAre(NcclLink{0, 1, {NcclTransportKind::peer, false, "C2C"}},
                            NcclLink{0, 2, {NcclTransportKind::shared_memory}},
                            NcclLink{0, 3, {NcclTransportKind::sockets, false, "ib0"}},
                            NcclLink{0, 4, {NcclTransportKind::nvlink}}));
}

/// As in aws-ofi-nccl issue 715 and nccl issue 1814.
TEST(NcclReport, CallsPluginsByTheirNamesAndNoLinkWhereNcclSaysNone) {
    const auto report = parse_nccl_report(
        "n0:7:8 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA\n"
        "n0:7:8 [0] NCCL INFO Channel 03/0 : 1[1] -> 9[1] [send] via NET/IBext_v8/2\n");
    EXPECT_THAT(report.links,
                ElementsAre(NcclLink{1, 8, {NcclTransportKind::plugin, true, "AWS Libfabric"}},
                            NcclLink{1, 9, {NcclTransportKind::rdma}}));
    EXPECT_EQ(transport_text(report.links[0].transport), "AWS Libfabric with GPUDirect");
    EXPECT_EQ(transport_text(report.links[1].transport), "InfiniBand or RoCE without GPUDirect");
    const auto bare =
        parse_nccl_report("n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n");
    EXPECT_THAT(bare.links, ElementsAre(NcclLink{0, 1, {NcclTransportKind::peer}}));
    EXPECT_THAT(transport_text(bare.links[0].transport), HasSubstr("not reported"));
}

// src/misc/ibvsymbols.cc and src/transport/net_ib.cc of 2.28.9-1.
TEST(NcclReport, SaysWhyThereIsNoRdma) {
    EXPECT_TRUE(
        parse_nccl_report("n:1:2 [0] NCCL INFO Failed to open libibverbs.so[.1]").lacks_verbs);
    EXPECT_TRUE(parse_nccl_report("n:1:2 [0] NCCL INFO NET/IB : No device found.").finds_no_device);
    EXPECT_FALSE(parse_nccl_report(report_2_28).lacks_verbs);
}

TEST(NcclReport, GuessesNothing) {
    for (const char* line : {"",
                             "n0:7:8 [0] NCCL INFO",
                             "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
                             "n0:7:8 [0] NCCL INFO Channel",
                             "n0:7:8 [0] NCCL INFO Channel 00/0 : 0 1 2 3",
                             "n0:7:8 [0] NCCL INFO Channel 00/0 : a[0] -> 1[1] via P2P/IPC",
                             "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> [1] via P2P/IPC",
                             "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via QPI/IPC",
                             "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/",
                             "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB",
                             "n0:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/x",
                             "n0:7:8 [0] NCCL INFO NET/IB : Using [0",
                             "n0:7:8 [0] NCCL INFO NET/IB : Using [0]={[",
                             "n0:7:8 [0] NCCL INFO GPU/ :GPU/1 (",
                             "n0:7:8 [0] NCCL INFO + PCI[24.0] - GPU/1 ("})
        EXPECT_THAT(parse_nccl_report(line).links, IsEmpty()) << line;
}

/// A report is read while NCCL may still write it.
TEST(NcclReport, MayBeCutAnywhere) {
    const std::string whole = report_2_28;
    for (std::size_t end = 0; end < whole.size(); ++end)
        for (const NcclLink& link : parse_nccl_report(std::string_view(whole).substr(0, end)).links)
            EXPECT_TRUE(link.from >= 0 && link.from <= 3 && link.to >= 0 && link.to <= 3) << end;
}

NcclReportPlan plan_of(const Settings& settings,
                       const std::string& file = "/own",
                       const std::string& root = "/nowhere") {
    return plan_nccl_report(Environment(settings), file, root);
}

TEST(NcclReportPlan, HasNcclWriteToAFileOfOursUnlessAUserHasOne) {
    const auto plan = plan_of({}, "/runs/100%/nccl-00001.log");
    EXPECT_EQ(plan.file, "/runs/100%/nccl-00001.log");
    EXPECT_EQ(plan.variables,
              (Settings{{"NCCL_DEBUG", "INFO"},
                        {"NCCL_DEBUG_SUBSYS", "INIT,ENV,GRAPH"},
                        {"NCCL_DEBUG_FILE", "/runs/100%%/nccl-00001.log"}}));
    EXPECT_FALSE(plan_of({{"NCCL_DEBUG_SUBSYS", "ALL"}}).variables.contains("NCCL_DEBUG_SUBSYS"));
    const auto own = plan_of({{"NCCL_DEBUG", "info"}, {"NCCL_DEBUG_FILE", "/x/nccl.%p.%%.%z"}});
    EXPECT_THAT(own.variables, IsEmpty());
    EXPECT_EQ(own.file, fmt::format("/x/nccl.{}.%.%z", ::getpid()));
}

TEST(NcclReportPlan, LeavesTheTerminalToUsersWhoWantItThereAlsoByNcclsOwnFiles) {
    const TempDir root;
    root.file("etc/nccl.conf", "NCCL_DEBUG=WARN\n");
    EXPECT_THAT(plan_of({}, "/own", root.path()).why_none, HasSubstr("NCCL_DEBUG=WARN"));
    for (const auto& [level, says] : {std::pair("INFO", "terminal"), std::pair("WARN", "unset")}) {
        const auto plan = plan_of({{"NCCL_DEBUG", level}});
        EXPECT_THAT(plan.variables, IsEmpty()) << level;
        EXPECT_TRUE(plan.file.empty()) << level;
        EXPECT_THAT(plan.why_none, HasSubstr(says)) << level;
        EXPECT_THAT(read_nccl_report(plan).links, IsEmpty()) << level;
    }
}

TEST(NcclReportPlan, SetsNothingWhereItsFileCannotBeMade) {
    auto plan = plan_of({}, "/nowhere/nccl-00000.log");
    ::unsetenv("NCCL_DEBUG");
    apply(plan);
    EXPECT_EQ(::getenv("NCCL_DEBUG"), nullptr);
    EXPECT_THAT(plan.why_none, HasSubstr("'/nowhere/nccl-00000.log' cannot be written"));
}

TEST(NcclReportPlan, IsReadFromItsFile) {
    const TempDir folder;
    const NcclReportPlan plan{{}, folder.file("nccl.log", report_2_28), ""};
    EXPECT_EQ(read_nccl_report(plan), parse_nccl_report(report_2_28));
    EXPECT_THAT(read_nccl_report({{}, folder / "none", ""}).links, IsEmpty());
    EXPECT_THAT(read_nccl_report({{}, "/dev/null", ""}).links, IsEmpty());
}

}  // namespace
