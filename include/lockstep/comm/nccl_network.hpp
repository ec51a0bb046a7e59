// SPDX-License-Identifier: Apache-2.0
/// @file
/// The paths that NCCL uses between all ranks, as short text, and hardware that it does not use.
#pragma once

#include "lockstep/core/environment.hpp"

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Record;

/// A way from a GPU to another.
enum class NcclTransportKind {
    nvlink,
    pcie,           ///< from GPU to GPU
    peer,           ///< from GPU to GPU; NCCL does not say by what link
    shared_memory,  ///< through the host's memory
    infiniband,
    roce,
    rdma,  ///< InfiniBand or RoCE: NCCL does not say which
    sockets,
    plugin,  ///< a network plug-in, by its own name
};

/// A way, and what it goes through.
struct NcclTransport {
    NcclTransportKind kind = NcclTransportKind::peer;
    bool is_gpu_direct = false;  ///< the card reads and writes the GPU's memory
    std::string through;  ///< "mlx5_0", "eth0", a plug-in's name, a path class ("PIX"); "" not said
    auto operator<=>(const NcclTransport&) const = default;
};

/// "NVLink", "PCIe (PIX)", "InfiniBand with GPUDirect", "sockets"; without devices.
std::string transport_text(const NcclTransport& transport);

/// A way that messages of rank `from` to rank `to` take.
struct NcclLink {
    int from = 0, to = 0;
    NcclTransport transport;
    auto operator<=>(const NcclLink&) const = default;
};

/// What one rank's NCCL said.
struct NcclReport {
    std::string version;           ///< "2.28.9+cuda13.0", "" not said
    std::vector<NcclLink> links;   ///< each once, sorted; a pair may have several
    bool lacks_verbs = false;      ///< it could not open libibverbs
    bool finds_no_device = false;  ///< libibverbs showed no device that it takes
    bool operator==(const NcclReport&) const = default;
};

void describe(Record& record, NcclTransport& transport);  ///< as logs have it
void describe(Record& record, NcclReport& report);        ///< as ranks exchange it

/// Of the lines that NCCL 2.14 to 2.30 write. What is not known is passed over: a pair of which
/// nothing else is said has no link.
NcclReport parse_nccl_report(std::string_view text);

/// The place of a rank's report.
struct NcclReportPlan {
    std::map<std::string, std::string> variables;  ///< to be set before NCCL's first call
    std::filesystem::path file;                    ///< "": there will be none
    std::string why_none;                          ///< then, for people
};

/// Has NCCL write to `own`, which must be a file of this rank's alone, unless the user has chosen
/// otherwise by NCCL_DEBUG or NCCL_DEBUG_FILE (also in NCCL's own files below `root`): what they
/// set stays as it is, and their file is read if it has enough.
NcclReportPlan plan_nccl_report(const Environment& environment,
                                const std::filesystem::path& own,
                                const std::string& root = "");

/// Sets the plan's variables in this process. Where `own` cannot be made nothing is set, for NCCL
/// would write to the terminal, and the plan says why. Before other threads are there that read the
/// environment.
void apply(NcclReportPlan& plan);

/// What the plan's file says by now. Nothing is an error: a report that cannot be read is an empty
/// one.
NcclReport read_nccl_report(const NcclReportPlan& plan);

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

void describe(Record& record, RankNetwork& network);  ///< for serialize() and back

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
