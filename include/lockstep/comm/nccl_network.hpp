// SPDX-License-Identifier: Apache-2.0
/// @file
/// The paths that NCCL uses between all ranks, as short text, and hardware that it does not use.
#pragma once

#include "lockstep/comm/nccl_report.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What a rank knows of its own part of the network.
struct RankNetwork {
    std::string host;                     ///< for people
    std::string node;                     ///< NCCL's name of the host
    std::vector<std::string> rdma_ports;  ///< "mlx5_0:1", active ones of its node
    std::string forbids_rdma;             ///< "NCCL_IB_DISABLE=1", "" if nothing does
    NcclReport report;
    std::string why_none;  ///< there is no report
    bool operator==(const RankNetwork&) const = default;
};

std::string packed(const RankNetwork& network);              ///< on one line, for other ranks
RankNetwork unpacked_rank_network(const std::string& text);  ///< what packed() wrote

/// This rank's part: what is to be read by `plan`, and active RDMA ports of its node.
RankNetwork rank_network(const NcclReportPlan& plan,
                         std::vector<std::string> rdma_ports,
                         const Environment& environment);

/// The setting that keeps NCCL from RDMA, with its value, or "".
std::string rdma_forbidden_by(const Environment& environment, const std::string& root = "");

/// Ordered pairs of ranks that use one kind of transport.
struct NcclTransportShare {
    bool is_between_nodes = false;
    NcclTransport transport;           ///< without what it goes through
    std::vector<std::string> through;  ///< devices, each once
    std::int64_t pairs = 0;            ///< of all `of` on a node, or between nodes
    std::int64_t of = 0;
    bool operator==(const NcclTransportShare&) const = default;
};

/// For the log of rank 0.
struct NetworkSummary {
    std::vector<NcclTransportShare> shares;  ///< inside nodes first
    std::int64_t not_reported = 0;           ///< pairs of which NCCL has said nothing
    std::string text;  ///< "8 ranks on 2 nodes: NVLink inside nodes; InfiniBand ... between"
    std::vector<std::string> warnings;
};

void describe(Record& record, NcclTransportShare& share);  ///< as logs have it
void describe(Record& record, NetworkSummary& summary);    ///< as logs have it

/// Of all ranks, by rank. Pure. Nothing to say of one rank: an empty text.
NetworkSummary summarize_network(std::span<const RankNetwork> ranks);

/// "rank 1 by shared memory, ranks 2-3 by NVLink": whom `rank` sends to. "" if nothing was said.
std::string links_text(const NcclReport& report, int rank);

}  // namespace lockstep
