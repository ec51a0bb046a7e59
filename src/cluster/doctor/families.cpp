// SPDX-License-Identifier: Apache-2.0
#include "doctor/families.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

/// Returns the GPU that a word of CUDA_VISIBLE_DEVICES names: its index, or the begin of its UUID.
const GpuFacts* named_gpu(const std::vector<const GpuFacts*>& gpus, const std::string& word) {
    if (const auto index = parse_integer(word)) {
        const bool is_there = *index >= 0 && static_cast<std::size_t>(*index) < gpus.size();
        return is_there ? gpus[static_cast<std::size_t>(*index)] : nullptr;
    }
    const auto found = std::ranges::find_if(gpus, [&](const GpuFacts* gpu) {
        return gpu->uuid.starts_with(word) || std::ranges::count(gpu->mig_uuids, word) > 0;
    });
    return found == gpus.end() ? nullptr : *found;
}

std::size_t count_of(std::span<const DoctorFinding> findings, Severity severity) {
    return static_cast<std::size_t>(
        std::ranges::count(findings, severity, &DoctorFinding::severity));
}

std::string plural(std::size_t count, const char* noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// " (ranks 0-3 on a, b)"; many hosts are counted.
std::string place_text(const DoctorFinding& finding) {
    constexpr std::size_t most_named = 4;
    const std::string hosts = finding.hosts.size() > most_named
                                  ? plural(finding.hosts.size(), "host")
                                  : fmt::format("{}", fmt::join(finding.hosts, ", "));
    return fmt::format(" ({} on {})", ranks_text(finding.ranks), hosts);
}

std::string finding_text(const DoctorFinding& finding) {
    std::string text = fmt::format("{} {}: {}{}\n",
                                   severity_name(finding.severity),
                                   finding.id,
                                   printable(finding.what),
                                   printable(place_text(finding)));
    if (!finding.why.empty()) text += "  why: " + printable(finding.why) + "\n";
    if (!finding.fix.empty()) text += "  fix: " + printable(finding.fix) + "\n";
    return text;
}

Json json_of(const DoctorFinding& finding) {
    return {{"id", finding.id},
            {"severity", severity_name(finding.severity)},
            {"title", finding.title},
            {"what", finding.what},
            {"why", finding.why},
            {"fix", finding.fix},
            {"ranks", finding.ranks},
            {"hosts", finding.hosts}};
}

}  // namespace

std::string variable(const DoctorFacts& facts, const std::string& name) {
    const auto found = facts.environment.find(name);
    return found == facts.environment.end() ? "" : found->second;
}

std::string variable_text(const DoctorFacts& facts, const std::string& name) {
    const auto found = facts.environment.find(name);
    return found == facts.environment.end() ? name + " is not set" : name + "=" + found->second;
}

std::optional<std::int64_t> whole_variable(const DoctorFacts& facts, const std::string& name) {
    return parse_integer(variable(facts, name));
}

std::vector<RanksOfNode> nodes_of(JobRanks ranks) {
    std::vector<RanksOfNode> nodes;
    std::unordered_map<std::string, std::size_t> place_of;
    for (const DoctorFacts& rank : ranks) {
        const auto [place, is_new] = place_of.try_emplace(rank.node.host_id(), nodes.size());
        if (is_new) nodes.emplace_back();
        nodes[place->second].push_back(&rank);
    }
    return nodes;
}

std::vector<int> numbers_of(const RanksOfNode& ranks) {
    std::vector<int> numbers;
    for (const DoctorFacts* each : ranks) numbers.push_back(each->rank);
    return numbers;
}

std::string values_text(const RanksByValue& values) {
    std::string text;
    for (const auto& [value, ranks] : values)
        text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", value, ranks_text(ranks));
    return text;
}

std::string lower_case(std::string text) {
    std::ranges::transform(
        text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

std::vector<std::string> comma_separated(const std::string& text) {
    std::vector<std::string> pieces = split(text, ',');
    std::erase(pieces, "");
    return pieces;
}

std::vector<const GpuFacts*> visible_gpus(const DoctorFacts& facts) {
    std::vector<const GpuFacts*> gpus;
    for (const GpuFacts& gpu : facts.node.gpus)
        if (gpu.has_driver) gpus.push_back(&gpu);
    if (!facts.environment.contains("CUDA_VISIBLE_DEVICES")) return gpus;
    std::vector<const GpuFacts*> visible;
    for (const std::string& word : comma_separated(variable(facts, "CUDA_VISIBLE_DEVICES"))) {
        const GpuFacts* gpu = named_gpu(gpus, word);
        if (gpu == nullptr) break;  // CUDA stops at the first that it does not know
        visible.push_back(gpu);
    }
    return visible;
}

const GpuFacts* gpu_of(const DoctorFacts& facts) {
    for (const GpuFacts& gpu : facts.node.gpus)
        if (!facts.gpu.empty() && gpu.pci.address == facts.gpu) return &gpu;
    const auto visible = visible_gpus(facts);
    if (visible.empty()) return nullptr;
    return visible[static_cast<std::size_t>(facts.local_rank) % visible.size()];
}

std::string findings_text(std::span<const DoctorFinding> findings, std::size_t checks) {
    std::string text;
    for (const DoctorFinding& finding : findings)
        if (finding.severity != Severity::info) text += finding_text(finding);
    const auto errors = count_of(findings, Severity::error);
    const auto warnings = count_of(findings, Severity::warning);
    const std::string verdict = errors + warnings == 0
                                    ? "all is well"
                                    : plural(errors, "error") + ", " + plural(warnings, "warning");
    return text + fmt::format("doctor: {} looked, {}\n", plural(checks, "check"), verdict);
}

std::string findings_json(std::span<const DoctorFinding> findings,
                          std::size_t checks,
                          std::size_t ranks) {
    Json list = Json::array();
    for (const DoctorFinding& finding : findings) list.push_back(json_of(finding));
    return Json{{"ranks", ranks},
                {"checks", checks},
                {"errors", count_of(findings, Severity::error)},
                {"warnings", count_of(findings, Severity::warning)},
                {"findings", list}}
        .dump();
}

std::vector<std::string> hosts_to_exclude(std::span<const DoctorFinding> findings, JobRanks ranks) {
    constexpr std::array faults_of_nodes{"C8",
                                         "G1",
                                         "G8",
                                         "G9",
                                         "G10",
                                         "G11",
                                         "G12",
                                         "F1",
                                         "F2",
                                         "F4",
                                         "F5",
                                         "F14",
                                         "L1",
                                         "T1",
                                         "T5"};
    const auto hosts = nodes_of(ranks).size();
    std::set<std::string> excluded;
    for (const DoctorFinding& finding : findings) {
        const bool is_fault = finding.severity != Severity::info &&
                              std::ranges::count(faults_of_nodes, finding.id) > 0;
        if (is_fault && (hosts == 1 || finding.hosts.size() < hosts))
            excluded.insert(finding.hosts.begin(), finding.hosts.end());
    }
    return {excluded.begin(), excluded.end()};
}

}  // namespace lockstep
