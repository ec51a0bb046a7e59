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

/// A kind of path from one GPU to another.
enum class NcclTransportKind {
    nvlink,
    pcie,           ///< directly from GPU to GPU
    peer,           ///< directly from GPU to GPU; NCCL does not report the link
    shared_memory,  ///< through the host's memory
    infiniband,
    roce,
    rdma,  ///< InfiniBand or RoCE: NCCL does not report which
    sockets,
    plugin,  ///< a network plug-in; `through` has its name
};

/// A path and the devices on it.
struct NcclTransport {
    NcclTransportKind kind = NcclTransportKind::peer;
    bool is_gpu_direct = false;  ///< the network card accesses the GPU's memory
    std::string
        through;  ///< "mlx5_0", "eth0", a plug-in's name, a path class ("PIX"); "": not reported
    auto operator<=>(const NcclTransport&) const = default;
};

/// Returns "NVLink", "PCIe (PIX)", "InfiniBand with GPUDirect", "sockets"; without devices.
std::string transport_text(const NcclTransport& transport);

/// A path of messages from rank `from` to rank `to`.
struct NcclLink {
    int from = 0, to = 0;
    NcclTransport transport;
    auto operator<=>(const NcclLink&) const = default;
};

/// The report of one rank's NCCL.
struct NcclReport {
    std::string version;           ///< "2.28.9+cuda13.0"; "": not reported
    std::vector<NcclLink> links;   ///< each once, sorted; a pair may have several
    bool lacks_verbs = false;      ///< NCCL could not open libibverbs
    bool finds_no_device = false;  ///< libibverbs showed no device that NCCL accepts
    bool operator==(const NcclReport&) const = default;
};

void describe(Record& record, NcclTransport& transport);  ///< the form in logs
void describe(Record& record, NcclReport& report);        ///< the form that ranks exchange

/// Parses the lines that NCCL 2.14 to 2.30 write. Unknown lines are ignored: a pair without other
/// lines has no link.
NcclReport parse_nccl_report(std::string_view text);

/// The place of a rank's report.
struct NcclReportPlan {
    std::map<std::string, std::string> variables;  ///< variables to set before NCCL's first call
    std::filesystem::path file;                    ///< "": there is no report
    std::string why_none;                          ///< the reason in that case, for people
};

/// Makes NCCL write to `own`, which must be a file of this rank alone, unless the user set
/// NCCL_DEBUG or NCCL_DEBUG_FILE (also in NCCL's own files below `root`). The user's settings stay,
/// and their file is read if it has enough detail.
NcclReportPlan plan_nccl_report(const Environment& environment,
                                const std::filesystem::path& own,
                                const std::string& root = "");

/// Sets the plan's variables in this process. If `own` cannot be created nothing is set, because
/// NCCL would write to the terminal, and the plan holds the reason. Call it before other threads
/// read the environment.
void apply(NcclReportPlan& plan);

/// Reads the plan's file as far as it is written. A report that cannot be read is returned as an
/// empty one; no errors.
NcclReport read_nccl_report(const NcclReportPlan& plan);

/// A rank's own part of the network.
struct RankNetwork {
    std::string host;                     ///< host name for people
    std::string node;                     ///< NCCL's name of the host
    std::vector<std::string> rdma_ports;  ///< active ports of its node: "mlx5_0:1"
    std::string forbids_rdma;             ///< "NCCL_IB_DISABLE=1"; "" if nothing does
    NcclReport report;
    std::string why_none;  ///< the reason why there is no report
    bool operator==(const RankNetwork&) const = default;
};

void describe(Record& record, RankNetwork& network);  ///< for serialize() and back

/// Returns this rank's part: its report by `plan`, and the active RDMA ports of its node.
RankNetwork rank_network(const NcclReportPlan& plan,
                         std::vector<std::string> rdma_ports,
                         const Environment& environment);

/// Returns the setting that keeps NCCL from RDMA, with its value, or "".
std::string rdma_forbidden_by(const Environment& environment, const std::string& root = "");

/// Ordered pairs of ranks that use one kind of transport.
struct NcclTransportShare {
    bool is_between_nodes = false;
    NcclTransport transport;           ///< without its devices
    std::vector<std::string> through;  ///< devices, each once
    std::int64_t pairs = 0;            ///< number of the `of` pairs on a node, or between nodes
    std::int64_t of = 0;
    bool operator==(const NcclTransportShare&) const = default;
};

/// A summary for the log of rank 0.
struct NetworkSummary {
    std::vector<NcclTransportShare> shares;  ///< those inside nodes first
    std::int64_t not_reported = 0;           ///< number of pairs that NCCL did not report
    std::string text;  ///< "8 ranks on 2 nodes: NVLink inside nodes; InfiniBand ... between"
    std::vector<std::string> warnings;
};

void describe(Record& record, NcclTransportShare& share);  ///< the form in logs
void describe(Record& record, NetworkSummary& summary);    ///< the form in logs

/// Summarizes all ranks, by rank. Pure. The text is empty for one rank.
NetworkSummary summarize_network(std::span<const RankNetwork> ranks);

/// Returns the ranks that `rank` sends to: "rank 1 by shared memory, ranks 2-3 by NVLink". "" if
/// nothing was reported.
std::string links_text(const NcclReport& report, int rank);

}  // namespace lockstep
