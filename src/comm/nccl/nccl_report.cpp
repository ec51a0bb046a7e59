// SPDX-License-Identifier: Apache-2.0
// Parses NCCL's report, line by line. These forms are recognised, with the source of each
// (github.com/NVIDIA/ nccl; the same from v2.14.3-1 to v2.30.7-1 unless noted):
//
//     host:pid:tid [dev] NCCL INFO MESSAGE                               src/debug.cc
//     Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read                       src/transport/p2p.cc
//     Channel 00 : 0[0] -> 1[1] via SHM/direct/direct                    src/transport/shm.cc
//     Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0(3)/GDRDMA(PCI)/Shared   src/transport/net.cc
//     NET/IB : Using [0]mlx5_0:1/IB [1]={[1] mlx5_1:1/RoCE, ...} [RO]; OOB .. src/transport/net_ib
//     NET/Socket : Using [0]eth0:10.0.0.1<0> src/transport/net_socket.cc
//     + PCI[48.0] - GPU/0-1b000 (3)          GPU/1B000 before 2.21       src/graph/topo.cc
//     GPU/0-1b000 :GPU/0-1b000 (0/5000.0/LOC) GPU/0-43000 (2/370.8/NVL)  src/graph/paths.cc
//
// "P2P" alone does not name the link: that is in the last two, which need NCCL_DEBUG_SUBSYS=GRAPH
// and are joined by the GPUs' names.
//
// What must never happen: a guess. A line in another form is skipped.
//
// Tested: comm/nccl/nccl_network_test.cpp.

#include "lockstep/comm/nccl_network.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/split.hpp"

#include "nccl/rank_facts.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 9> kind_names{
    "nvlink", "pcie", "peer", "shared memory", "infiniband", "roce", "rdma", "sockets", "plugin"};

/// Returns the text between the first `before` and the next `after` ("": the end).
std::optional<std::string_view> between(std::string_view text,
                                        std::string_view before,
                                        std::string_view after) {
    const auto found = text.find(before);
    if (found == text.npos) return {};
    text.remove_prefix(found + before.size());
    if (after.empty()) return text;
    const auto end = text.find(after);
    if (end == text.npos) return {};
    return text.substr(0, end);
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
    if (!text.ends_with(suffix)) return false;
    text.remove_suffix(suffix.size());
    return true;
}

/// "mlx5_0:1/IB": the name, and InfiniBand or RoCE.
std::pair<std::string, std::optional<NcclTransportKind>> verbs_device(std::string_view word) {
    const auto layer = between(word, "/", "").value_or("");
    std::optional<NcclTransportKind> kind;
    if (layer == "IB") kind = NcclTransportKind::infiniband;
    if (layer == "RoCE") kind = NcclTransportKind::roce;
    return {std::string(word.substr(0, word.find(':'))), kind};
}

/// The links of one rank's report as they come in, and what they are joined with at the end.
class Lines {
  public:
    void read(std::string_view message) {
        if (const auto version = between(message, "NCCL version ", ""))
            report_.version = version->substr(0, version->find(' '));
        else if (message.starts_with("Channel "))
            read_channel(message);
        else if (const auto verbs = between(message, "NET/IB : Using", ";"))
            read_verbs_devices(*verbs);
        else if (const auto sockets = between(message, "NET/Socket : Using", ""))
            read_socket_devices(*sockets);
        else if (message.starts_with("NET/IB : No device found"))
            report_.finds_no_device = true;
        else if (message.starts_with("Failed to open libibverbs.so"))
            report_.lacks_verbs = true;
        else if (message.starts_with("GPU/"))
            read_paths(message);
        else if (const auto gpu = between(message, "- GPU/", ")"))
            if (const auto rank = parse_integer(between(*gpu, "(", "").value_or("")))
                gpu_of_rank_[*rank] = gpu->substr(0, gpu->find(' '));
    }

    NcclReport finish() {
        for (NcclLink& link : report_.links) link.transport = with_path(link);
        std::ranges::sort(report_.links);
        report_.links.erase(std::unique(report_.links.begin(), report_.links.end()),
                            report_.links.end());
        return std::move(report_);
    }

  private:
    struct NetDevice {
        std::string name;
        std::optional<NcclTransportKind> layer;
    };
    using Pair = std::pair<std::string, std::string>;

    /// "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0": ranks, and a GPU's number or bus in
    /// brackets.
    void read_channel(std::string_view message) {
        const auto from = parse_integer(between(message, " : ", "[").value_or(""));
        const auto to = parse_integer(between(message, " -> ", "[").value_or(""));
        const auto via = between(message, " via ", "");
        if (!from || !to || !via) return;
        if (const auto transport = transport_of(*via))
            report_.links.push_back({static_cast<int>(*from), static_cast<int>(*to), *transport});
    }

    std::optional<NcclTransport> transport_of(std::string_view via) const {
        if (via.starts_with("P2P/MNNVL")) return NcclTransport{.kind = NcclTransportKind::nvlink};
        if (via.starts_with("P2P/")) return NcclTransport{.kind = NcclTransportKind::peer};
        if (via.starts_with("SHM/")) return NcclTransport{.kind = NcclTransportKind::shared_memory};
        if (via.starts_with("NET/")) return network_of(via.substr(4));
        return {};
    }

    /// "IB/0(3)/GDRDMA/Shared": name, device, the rank whose process sends.
    std::optional<NcclTransport> network_of(std::string_view via) const {
        take_suffix(via, "/Shared");
        NcclTransport transport;
        transport.is_gpu_direct = take_suffix(via, "/GDRDMA") || take_suffix(via, "/GDRDMA(PCI)");
        const auto slash = via.rfind('/');
        if (slash == via.npos) return {};
        const std::string_view name = via.substr(0, slash);
        std::string_view number = via.substr(slash + 1);
        number = number.substr(0, number.find('('));
        const auto index = parse_integer(number);
        if (!index) return {};
        // IBext is NVIDIA's own plug-in: the same cards by the same list.
        const bool is_verbs = name == "IB" || name.starts_with("IBext");
        if (!is_verbs && name != "Socket") {
            transport.kind = NcclTransportKind::plugin;
            transport.through = name;
            return transport;
        }
        const auto& devices = is_verbs ? verbs_ : sockets_;
        const auto device = devices.find(*index);
        transport.kind = is_verbs ? NcclTransportKind::rdma : NcclTransportKind::sockets;
        if (device == devices.end()) return transport;
        transport.through = device->second.name;
        transport.kind = device->second.layer.value_or(transport.kind);
        return transport;
    }

    /// " [0]mlx5_0:1/IB [1]={[1] mlx5_1:1/IB, [2] mlx5_2:1/IB} [RO]": the second is two that NCCL
    /// uses as one.
    void read_verbs_devices(std::string_view list) {
        while (const auto index = parse_integer(between(list, "[", "]").value_or(""))) {
            list.remove_prefix(list.find(']') + 1);
            const bool is_merged = list.starts_with("={");
            const auto end = std::min(list.find(is_merged ? '}' : ' '), list.size());
            NetDevice& device = verbs_[*index];
            for (std::string& word : split(list.substr(is_merged ? 2 : 0, end), ',')) {
                if (const auto bracket = word.rfind("] "); bracket != word.npos)
                    word.erase(0, bracket + 2);
                while (!word.empty() && (word.back() == '}' || word.back() == ' ')) word.pop_back();
                const auto [name, layer] = verbs_device(word);
                device.name += (device.name.empty() ? "" : "+") + name;
                device.layer = layer;
            }
            list.remove_prefix(end);
        }
    }

    /// " [0]eth0:10.0.0.1<0> [1]eth1:..."
    void read_socket_devices(std::string_view list) {
        while (const auto index = parse_integer(between(list, "[", "]").value_or(""))) {
            list.remove_prefix(list.find(']') + 1);
            sockets_[*index].name = list.substr(0, list.find(':'));
        }
    }

    /// "GPU/0-1b000 :GPU/0-1b000 (0/5000.0/LOC) GPU/0-43000 (2/370.8/NVL) CPU/..": where the path
    /// is LOC is the GPU itself, which some versions write otherwise before the colon.
    void read_paths(std::string_view message) {
        std::string self;
        std::vector<Pair> others;
        std::istringstream words{std::string(between(message, ":", "").value_or(""))};
        for (std::string name, path; words >> name >> path;) {
            if (!name.starts_with("GPU/") || !path.ends_with(")")) continue;
            name.erase(0, 4);
            const std::string word =
                path.substr(path.rfind('/') + 1, path.size() - path.rfind('/') - 2);
            if (word == "LOC")
                self = name;
            else
                others.emplace_back(name, word);
        }
        if (self.empty()) return;
        for (const auto& [name, word] : others) paths_[{self, name}] = word;
    }

    NcclTransport with_path(const NcclLink& link) const {
        if (link.transport.kind != NcclTransportKind::peer) return link.transport;
        const auto from = gpu_of_rank_.find(link.from), to = gpu_of_rank_.find(link.to);
        if (from == gpu_of_rank_.end() || to == gpu_of_rank_.end()) return link.transport;
        const auto path = paths_.find({from->second, to->second});
        if (path == paths_.end()) return link.transport;
        const std::string& word = path->second;
        if (word == "NVL" || word == "NVB") return {.kind = NcclTransportKind::nvlink};
        const bool is_pci = word == "PIX" || word == "PXB" || word == "PHB" || word == "SYS";
        return {.kind = is_pci ? NcclTransportKind::pcie : NcclTransportKind::peer,
                .through = word};
    }

    NcclReport report_;
    std::map<std::int64_t, NetDevice> verbs_, sockets_;
    std::map<std::int64_t, std::string> gpu_of_rank_;
    std::map<Pair, std::string> paths_;
};

std::string_view kind_text(NcclTransportKind kind) {
    constexpr std::array<std::string_view, 9> texts{"NVLink",
                                                    "PCIe",
                                                    "GPU to GPU, by a link that is not reported",
                                                    "shared memory",
                                                    "InfiniBand",
                                                    "RoCE",
                                                    "InfiniBand or RoCE",
                                                    "sockets",
                                                    ""};
    return texts.at(static_cast<std::size_t>(kind));
}

bool may_be_gpu_direct(NcclTransportKind kind) {
    return kind == NcclTransportKind::infiniband || kind == NcclTransportKind::roce ||
           kind == NcclTransportKind::rdma || kind == NcclTransportKind::plugin;
}

/// Links of one transport, as a list of from, to, from, to: of a thousand ranks each has thousands
/// of links, and rank 0 reads them all.
struct NcclWay {
    NcclTransport transport;
    std::vector<int> ends;
};

void describe(Record& record, NcclWay& way) {
    describe(record, way.transport);
    record.field("ends", way.ends);
}

std::vector<NcclWay> ways_of(const std::vector<NcclLink>& links) {
    std::map<NcclTransport, std::vector<int>> ends;
    for (const NcclLink& link : links)
        ends[link.transport].insert(ends[link.transport].end(), {link.from, link.to});
    std::vector<NcclWay> ways;
    for (const auto& [transport, list] : ends) ways.push_back({transport, list});
    return ways;
}

std::vector<NcclLink> links_of(const std::vector<NcclWay>& ways) {
    std::vector<NcclLink> links;
    for (const NcclWay& way : ways)
        for (std::size_t i = 0; i + 1 < way.ends.size(); i += 2)
            links.push_back({way.ends[i], way.ends[i + 1], way.transport});
    std::ranges::sort(links);
    return links;
}

// Subsystems: INIT for connections, NET's INIT part for cards, GRAPH for NVLink, ENV for settings.
constexpr const char* subsystems = "INIT,ENV,GRAPH";

std::string upper_case(std::string text) {
    std::ranges::transform(
        text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return text;
}

/// NCCL's own expansion (src/debug.cc, ncclDebugInit): %h the host without its domain, %p the
/// process.
std::string expanded(const std::string& name) {
    std::string path;
    for (std::size_t i = 0; i < name.size(); ++i) {
        if (name[i] != '%' || i + 1 == name.size()) {
            path += name[i];
            continue;
        }
        const char word = name[++i];
        if (word == 'h')
            path += host_name().substr(0, host_name().find('.'));
        else if (word == 'p')
            path += fmt::format("{}", ::getpid());
        else if (word == '%')
            path += '%';
        else
            path += fmt::format("%{}", word);
    }
    return path;
}

/// For NCCL, so that it expands to `path`.
std::string escaped(const std::string& path) {
    std::string name;
    for (const char c : path) name += c == '%' ? std::string("%%") : std::string(1, c);
    return name;
}

/// Returns the plan for a user who has set NCCL_DEBUG.
NcclReportPlan plan_of_users(const std::string& level, const std::string& file) {
    NcclReportPlan plan;
    const bool is_enough = upper_case(level) == "INFO" || upper_case(level) == "TRACE";
    if (is_enough && !file.empty())
        plan.file = expanded(file);
    else if (is_enough)
        plan.why_none = fmt::format(
            "NCCL_DEBUG={} sends NCCL's report to the terminal; NCCL_DEBUG_FILE=FILE.%h.%p, or "
            "leaving NCCL_DEBUG unset, keeps it for reading",
            level);
    else
        plan.why_none =
            fmt::format("NCCL_DEBUG={} is set; NCCL reports it if that is unset or INFO", level);
    return plan;
}

}  // namespace

std::string transport_text(const NcclTransport& transport) {
    const bool is_plugin = transport.kind == NcclTransportKind::plugin;
    std::string text = is_plugin ? transport.through : std::string(kind_text(transport.kind));
    if (transport.kind == NcclTransportKind::pcie) text += fmt::format(" ({})", transport.through);
    if (transport.kind == NcclTransportKind::peer && !transport.through.empty())
        text = fmt::format("GPU to GPU ({})", transport.through);
    if (may_be_gpu_direct(transport.kind))
        text += transport.is_gpu_direct ? " with GPUDirect" : " without GPUDirect";
    return text;
}

void describe(Record& record, NcclTransport& transport) {
    record.field("kind", transport.kind, kind_names);
    record.sparse("gpu_direct", transport.is_gpu_direct);
    record.sparse("through", transport.through);
}

void describe(Record& record, NcclReport& report) {
    record.sparse("version", report.version);
    std::vector<NcclWay> ways = ways_of(report.links);
    record.field("ways", ways);
    report.links = links_of(ways);
    record.sparse("lacks_verbs", report.lacks_verbs);
    record.sparse("finds_no_device", report.finds_no_device);
}

NcclReport parse_nccl_report(std::string_view text) {
    constexpr std::string_view mark = "NCCL INFO ";
    Lines lines;
    for (const std::string& line : split(text, '\n')) {
        const auto begin = line.find(mark);
        if (begin != line.npos)
            lines.read(std::string_view(line).substr(begin + mark.size()));
        else if (line.starts_with("NCCL version "))
            lines.read(line);
    }
    return lines.finish();
}

// A user's NCCL_DEBUG decides where NCCL's report goes; without it, the report goes to a file of
// ours, which is read afterwards.
NcclReportPlan plan_nccl_report(const Environment& environment,
                                const fs::path& own,
                                const std::string& root) {
    const auto variables = nccl_variables(environment, root);
    const std::string level = nccl_variable(variables, "NCCL_DEBUG");
    const std::string file = nccl_variable(variables, "NCCL_DEBUG_FILE");
    if (!level.empty()) return plan_of_users(level, file);
    NcclReportPlan plan;
    plan.variables["NCCL_DEBUG"] = "INFO";
    if (nccl_variable(variables, "NCCL_DEBUG_SUBSYS").empty())
        plan.variables["NCCL_DEBUG_SUBSYS"] = subsystems;
    plan.variables["NCCL_DEBUG_FILE"] = escaped(own);
    plan.file = own;
    return plan;
}

void apply(NcclReportPlan& plan) {
    if (plan.variables.empty()) return;
    if (!std::ofstream(plan.file)) {
        plan = {.why_none = fmt::format("'{}' cannot be written", plan.file.string())};
        return;
    }
    for (const auto& [name, value] : plan.variables) ::setenv(name.c_str(), value.c_str(), 1);
}

NcclReport read_nccl_report(const NcclReportPlan& plan) {
    std::error_code failed;
    if (!fs::is_regular_file(plan.file, failed)) return {};
    try {
        return parse_nccl_report(read_file(plan.file));
    } catch (const Error&) {
        return {};  // too large, or gone: what is not known is said so
    }
}

}  // namespace lockstep
